"""The test service's unary method, which answers by the law "straggler" with the bytes of its request."""
import asyncio
import math
import random
import sys

import grpc

VARIANCE = math.log1p(0.16)  # mean 5 ms, standard deviation 2 ms


def delay():
    seconds = random.lognormvariate(math.log(0.005) - VARIANCE / 2, math.sqrt(VARIANCE))
    return seconds * 10 if random.random() < 0.05 else seconds


async def unary(request, context):
    await asyncio.sleep(delay())
    return request


async def main():
    server = grpc.aio.server()
    methods = {"Unary": grpc.unary_unary_rpc_method_handler(unary)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("hedgetest.TestService", methods),))
    server.add_insecure_port("127.0.0.1:" + sys.argv[1])
    await server.start()
    await server.wait_for_termination()


asyncio.run(main())
