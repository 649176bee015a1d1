import com.linecorp.armeria.server.Server;
import com.linecorp.armeria.server.grpc.GrpcService;
import io.grpc.ServerServiceDefinition;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ServerCalls;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** The test service's unary method, which answers by the law "straggler" with the bytes of its request. */
public final class Hello {
    private static final double VARIANCE = Math.log1p(0.16); // mean 5 ms, standard deviation 2 ms

    private static long delayNanos() {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        double ms = Math.exp(Math.log(5) - VARIANCE / 2 + Math.sqrt(VARIANCE) * random.nextGaussian());
        return (long) (1e6 * (random.nextDouble() < 0.05 ? 10 * ms : ms));
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[1]);
        ScheduledExecutorService timer = Executors.newScheduledThreadPool(2);
        ServerServiceDefinition service = ServerServiceDefinition.builder("hedgetest.TestService")
                .addMethod(Unary.METHOD, ServerCalls.asyncUnaryCall((request, observer) -> timer.schedule(() -> {
                    observer.onNext(request);
                    observer.onCompleted();
                }, delayNanos(), TimeUnit.NANOSECONDS)))
                .build();
        if (args[0].equals("armeria")) {
            Server.builder().http(new InetSocketAddress("127.0.0.1", port))
                    .service(GrpcService.builder().addService(service).build())
                    .build().start().join();
        } else {
            NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", port)).addService(service).build().start().awaitTermination();
        }
    }
}
