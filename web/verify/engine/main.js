// The engine of the page: it stands in a script of its own, which also runs as a worker, so
// that a long list does not stop the page. It asks no server and no clock.

import { isChainHash, verify } from "./verify.js";

const largest = 256 << 20; // bytes; 500,500 positions are 100 MB

// checkFiles verifies what two blobs hold; purchase may be null.
async function checkFiles({ proof, purchase, chainHashes }, progress) {
  for (const blob of [proof, purchase]) {
    if (blob && blob.size > largest) throw new Error(`The file has ${Math.round(blob.size / 2 ** 20).toLocaleString("en")} MiB. No proof has more than ${largest >> 20} MiB, so it was not read.`);
  }
  const bytesOf = async (blob) => new Uint8Array(await blob.arrayBuffer());
  return verify(await bytesOf(proof), { purchase: purchase && (await bytesOf(purchase)), chainHashes, progress });
}

globalThis.drawVerifier = { verify, checkFiles, isChainHash, largest };

if (typeof WorkerGlobalScope !== "undefined" && globalThis instanceof WorkerGlobalScope) {
  globalThis.onmessage = async ({ data }) => {
    try {
      const report = await checkFiles(data, (what, part) => postMessage({ progress: { what, part } }));
      postMessage({ report });
    } catch (error) {
      postMessage({ error: error.message });
    }
  };
}
