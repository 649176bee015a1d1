//! The test service's unary method, which answers by the law "straggler" with the bytes of its request.
use bytes::{Buf, BufMut, Bytes};
use std::{convert::Infallible, future::Future, pin::Pin, task, time::Duration};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{http, Body, Service, StdError};
use tonic::{Request, Response, Status};

fn delay() -> Duration {
    let normal = (-2.0 * (1.0 - rand::random::<f64>()).ln()).sqrt() * (std::f64::consts::TAU * rand::random::<f64>()).cos();
    let variance = 0.16_f64.ln_1p(); // mean 5 ms, standard deviation 2 ms
    let seconds = 0.005 * (variance.sqrt() * normal - variance / 2.0).exp();
    Duration::from_secs_f64(if rand::random::<f64>() < 0.05 { 10.0 * seconds } else { seconds })
}

#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;
    fn encoder(&mut self) -> Raw {
        Raw
    }
    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

struct Unary;

impl tonic::server::UnaryService<Bytes> for Unary {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Status>> + Send>>;
    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(async move {
            tokio::time::sleep(delay()).await;
            Ok(Response::new(request.into_inner()))
        })
    }
}

#[derive(Clone)]
struct Hello;

impl<B> Service<http::Request<B>> for Hello
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;
    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        task::Poll::Ready(Ok(()))
    }
    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(Unary, request).await) })
    }
}

impl tonic::server::NamedService for Hello {
    const NAME: &'static str = "hedgetest.TestService";
}

// The arguments are the port, and how many resets of requests that were not accepted a connection may have.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let address = format!("127.0.0.1:{}", args[args.len() - 1]).parse()?;
    let mut builder = tonic::transport::Server::builder();
    if args.len() > 2 {
        builder = builder.http2_max_pending_accept_reset_streams(Some(args[1].parse()?));
    }
    builder.add_service(Hello).serve(address).await?;
    Ok(())
}
