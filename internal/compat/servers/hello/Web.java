import io.netty.buffer.Unpooled;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.netty.http.HttpProtocol;
import reactor.netty.http.server.HttpServer;

/** The test service's unary method over HTTP: it answers by the law "straggler" with the bytes of its request. */
public final class Web {
    private static final double VARIANCE = Math.log1p(0.16); // mean 5 ms, standard deviation 2 ms

    private static Duration delay() {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        double ms = Math.exp(Math.log(5) - VARIANCE / 2 + Math.sqrt(VARIANCE) * random.nextGaussian());
        return Duration.ofNanos((long) (1e6 * (random.nextDouble() < 0.05 ? 10 * ms : ms)));
    }

    public static void main(String[] args) {
        HttpServer.create()
                .host("127.0.0.1").port(Integer.parseInt(args[0])).protocol(HttpProtocol.H2C)
                .handle((request, response) -> request.receive().aggregate().asByteArray().defaultIfEmpty(new byte[0])
                        .flatMap(body -> Mono.delay(delay()).then(response.header("Id", request.requestHeaders().get("Id", ""))
                                .sendByteArray(Mono.just(body)).then())))
                .bindNow().onDispose().block();
    }
}
