// Asks the server for all that a browser asks for, and writes what came into the page.
const seen = [];
const tell = (...words) => seen.push(words.join(" "));

async function ask(name, path, options) {
  const reply = await fetch(path, { cache: "no-store", ...options });
  const bytes = new Uint8Array(await reply.arrayBuffer());
  const field = (name) => reply.headers.get(name) ?? "-";
  tell(name, reply.status, field("content-type"), field("content-range"), bytes.length);
  return bytes;
}

const text = (bytes) => tell("text", new TextDecoder().decode(bytes));
const range = (range) => ({ headers: { Range: range } });

async function look() {
  tell("colour", getComputedStyle(document.getElementById("styled")).color);
  const picture = document.getElementById("picture");
  await picture.decode();
  tell("picture", picture.naturalWidth, picture.naturalHeight);
  const entries = performance.getEntriesByType("resource");
  tell("came", entries.length, ...new Set(entries.map((entry) => entry.nextHopProtocol)));

  text(await ask("middle", "letters.txt", range("bytes=10-14")));
  text(await ask("end", "letters.txt", range("bytes=-3")));
  await ask("beyond", "letters.txt", range("bytes=90-"));
  text(await ask("kept", "letters.txt", { cache: "default" }));
  text(await ask("asked again", "letters.txt", { cache: "no-cache" }));
  text(await ask("named", "a b ü.txt"));
  await ask("head", "letters.txt", { method: "HEAD" });
  await ask("absent", "absent");
  await ask("posted", "letters.txt", { method: "POST", body: "a=b" });
  const large = await ask("large", "large.bin");
  tell("sum", large.reduce((sum, byte) => sum + byte, 0));

  const crowd = Array.from({ length: 12 }, (_, at) => fetch(`letters.txt?${at}`, { cache: "no-store" }));
  const texts = await Promise.all(crowd.map(async (reply) => (await reply).text()));
  tell("crowd", texts.length, ...new Set(texts));
  const metrics = await (await fetch("metrics")).text();
  tell("metrics", /^mpps_requests_total [1-9]/m.test(metrics) || metrics);
}

look()
  .catch((error) => tell("failed", error))
  .then(() => {
    document.getElementById("seen").textContent = [...seen, "over"].join("\n");
  });
