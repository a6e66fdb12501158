// What the page asks the program for. Addresses are relative: the token is part of the page's own.

async function asked(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch {
    throw new Error("The program does not answer: it may have been closed.");
  }
  if (answer.ok) return answer;
  let sentence = `The program refused this (${answer.status}).`;
  try {
    sentence = (await answer.json()).error;
  } catch { /* no sentence of its own */ }
  throw new Error(sentence);
}

export async function addPicture(file) {
  const answer = await asked(`pictures?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
  return answer.json();
}

export async function addMask(picture, content, name) {
  const address = `pictures/${picture}/mask?name=${encodeURIComponent(name)}`;
  return (await asked(address, { method: "POST", body: content })).json();
}

export async function addJob(wish) {
  return (await asked("jobs", { method: "POST", body: JSON.stringify(wish) })).json();
}

export const stop = (job) => asked(`jobs/${job}/stop`, { method: "POST" });
export const remove = (job) => asked(`jobs/${job}`, { method: "DELETE" });

export const before = (picture, slice) => `pictures/${picture}/before.png?slice=${slice}`;
export const mask = (picture, version) => `pictures/${picture}/mask.png?version=${version}`;
export const after = (job, slice, version) => `jobs/${job}/after.png?slice=${slice}&version=${version}`;

// Tells all jobs whenever one has changed, until the program is closed.
export function listen(tell, closed) {
  const events = new EventSource("events");
  events.onmessage = (event) => tell(JSON.parse(event.data));
  events.addEventListener("closed", () => { events.close(); closed(); });
}
