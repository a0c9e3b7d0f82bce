// The engine of the page: it stands in a script of its own, which also runs as a worker, so
// that a long list does not stop the page. It asks no server and no clock.

import { largest } from "./canonical.js";
import { isHash, verify } from "./verify.js";

// checkFiles verifies what two blobs hold; purchase may be null. options are those of verify.
async function checkFiles({ proof, purchase, options }, progress) {
  const bytesOf = async (blob) => (blob.size > largest ? null : new Uint8Array(await blob.arrayBuffer()));
  return verify(await bytesOf(proof), { ...options, purchase: purchase ? await bytesOf(purchase) : undefined, progress });
}

globalThis.drawVerifier = { verify, checkFiles, isHash, largest };

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
