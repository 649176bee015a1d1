import io.grpc.Attributes;
import io.grpc.CallOptions;
import io.grpc.ClientStreamTracer;
import io.grpc.EquivalentAddressGroup;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.NameResolverRegistry;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import java.net.InetSocketAddress;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Makes calls by a hedgingPolicy, one after the other, and prints how long each took. Arguments: ports, hedgingDelay,
 * the non-fatal status, the number of calls, and "mark" or "plain".
 */
public final class Hedge {
    /** Marks the hedges of one call that are sent while its primary is in flight. */
    private static final class Marks extends ClientStreamTracer.Factory {
        private static final Metadata.Key<String> MARK =
                Metadata.Key.of("hedge-primary-in-flight", Metadata.ASCII_STRING_MARSHALLER);
        private volatile boolean over;

        @Override
        public ClientStreamTracer newClientStreamTracer(ClientStreamTracer.StreamInfo info, Metadata headers) {
            boolean primary = info.getPreviousAttempts() == 0;
            if (!primary && !over) {
                headers.put(MARK, "1");
            }
            return new ClientStreamTracer() {
                @Override
                public void streamClosed(Status status) {
                    over |= primary;
                }
            };
        }
    }

    public static void main(String[] args) throws Exception {
        List<EquivalentAddressGroup> servers = new ArrayList<>();
        for (String port : args[0].split(",")) {
            servers.add(new EquivalentAddressGroup(new InetSocketAddress("127.0.0.1", Integer.parseInt(port))));
        }
        NameResolverRegistry.getDefaultRegistry().register(new NameResolverProvider() {
            @Override
            protected boolean isAvailable() {
                return true;
            }

            @Override
            protected int priority() {
                return 5;
            }

            @Override
            public String getDefaultScheme() {
                return "test";
            }

            @Override
            public NameResolver newNameResolver(URI uri, NameResolver.Args resolverArgs) {
                return new NameResolver() {
                    @Override
                    public String getServiceAuthority() {
                        return "test";
                    }

                    @Override
                    public void start(Listener2 listener) {
                        listener.onResult(ResolutionResult.newBuilder()
                                .setAddresses(servers).setAttributes(Attributes.EMPTY).build());
                    }

                    @Override
                    public void shutdown() {
                    }
                };
            }
        });
        Map<String, ?> policy = Map.of("maxAttempts", 3.0, "hedgingDelay", args[1],
                "nonFatalStatusCodes", List.of(args[2]));
        ManagedChannel channel = NettyChannelBuilder.forTarget("test:///servers").usePlaintext()
                .defaultLoadBalancingPolicy("round_robin").enableRetry()
                .defaultServiceConfig(Map.of("methodConfig", List.of(Map.of(
                        "name", List.of(Map.of("service", "hedgetest.TestService")), "hedgingPolicy", policy))))
                .build();
        for (int n = Integer.parseInt(args[3]); n > 0; n--) {
            long began = System.nanoTime();
            String outcome = "OK";
            try {
                CallOptions options = CallOptions.DEFAULT;
                if (args[4].equals("mark")) {
                    options = options.withStreamTracerFactory(new Marks());
                }
                ClientCalls.blockingUnaryCall(channel, Unary.METHOD, options, new byte[0]);
            } catch (StatusRuntimeException e) {
                outcome = e.getStatus().getCode().toString();
            }
            System.out.println(outcome + " " + (System.nanoTime() - began) / 1_000_000);
        }
        channel.shutdownNow();
    }
}
