// A PodResources client on grpc-js, which shares no code with the server: node CLIENT PROTO SOCKET prints two answers.
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [proto, socket] = process.argv.slice(2);
const {v1} = grpc.loadPackageDefinition(loader.loadSync(proto, {longs: String, keepCase: true}));
const client = new v1.PodResourcesLister(`unix:${socket}`, grpc.credentials.createInsecure());
const deadline = () => ({deadline: Date.now() + 30000});

client.List({}, deadline(), (failed, list) => {
  if (failed) throw failed;
  client.GetAllocatableResources({}, deadline(), (alsoFailed, allocatable) => {
    if (alsoFailed) throw alsoFailed;
    console.log(JSON.stringify({list, allocatable}));
    client.close();
  });
});
