// The test service's unary method, which answers by the law "straggler" with the bytes of its request.
'use strict';
const grpc = require('@grpc/grpc-js');

function delay() {
  const normal = Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  const variance = Math.log1p(0.16); // mean 5 ms, standard deviation 2 ms
  const ms = Math.exp(Math.log(5) - variance / 2 + Math.sqrt(variance) * normal);
  return Math.random() < 0.05 ? 10 * ms : ms;
}

const same = (bytes) => bytes;
const unary = {
  path: '/hedgetest.TestService/Unary',
  requestStream: false,
  responseStream: false,
  requestSerialize: same,
  requestDeserialize: same,
  responseSerialize: same,
  responseDeserialize: same,
};
const server = new grpc.Server();
server.addService({ unary }, { unary: (call, answer) => setTimeout(() => answer(null, call.request), delay()) });
server.bindAsync('127.0.0.1:' + process.argv[2], grpc.ServerCredentials.createInsecure(), (err) => {
  if (err) throw err;
});
