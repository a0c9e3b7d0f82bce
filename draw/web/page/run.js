// Runs the engine in a worker. A browser that allows none, as some do for files from disk,
// runs it in the page, which then stands still meanwhile.

let worker = null;
let abandon = () => {};

export function run(files, progress) {
  worker?.terminate();
  abandon();
  try {
    const script = new Blob([document.getElementById("engine").textContent], { type: "text/javascript" });
    const address = URL.createObjectURL(script);
    worker = new Worker(address);
    return new Promise((resolve, reject) => {
      abandon = () => reject(new Error("Another check was begun."));
      worker.onmessage = ({ data }) => {
        if (data.progress) {
          progress(data.progress.what, data.progress.part);
          return;
        }
        finish(address);
        if (data.report) resolve(data.report);
        else reject(new Error(data.error));
      };
      worker.onerror = (event) => {
        finish(address);
        event.preventDefault();
        resolve(here(files));
      };
      worker.postMessage(files);
    });
  } catch {
    return here(files);
  }
}

function finish(address) {
  worker.terminate();
  worker = null;
  abandon = () => {};
  URL.revokeObjectURL(address);
}

const here = (files) => globalThis.drawVerifier.checkFiles(files, () => {});
