// What is said of restorations.

const $ = (id) => document.getElementById(id);

export const isUnderWay = (job) => ["waiting", "running", "finishing"].includes(job.state);

function duration(seconds) {
  const whole = Math.max(1, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60), hours = Math.floor(minutes / 60);
  return hours ? `${hours} h ${minutes % 60} min` : `${minutes} min ${whole % 60} s`;
}

export function sentence(job) {
  const stack = job.slices > 1;
  if (job.state === "waiting") return job.place > 1 ? `Waiting, ${job.place - 1} before it` : "Waiting";
  if (job.state === "failed") return job.error;
  if (job.stopping) {
    return job.state === "finishing" ? "Stopping after this slice; the others stay as they are"
      : "Stopping after this iteration; what was learnt is kept";
  }
  if (job.state === "finishing") {
    return stack ? `Putting slice ${Math.min(job.done + 1, job.slices)} of ${job.slices} together`
      : "Putting the picture together";
  }
  if (job.state === "done") {
    return `Done in ${duration(job.seconds)}, noise level ${job.noise_level.toPrecision(3)}`;
  }
  if (!job.stage) return "Looking at the noise; the first time, compiling takes a while";
  const learning = stack ? `Learning from ${job.slices} slices` : "Learning";
  const name = job.stage === "learning" ? learning : "A coarse start";
  const left = job.stage === "learning" ? `, about ${duration(job.seconds_left)} left` : "";
  return `${name}, ${job.iteration} of ${job.max_iter}${left}`;
}

function share(job) {
  if (job.state === "done") return 1;
  if (!job.max_iter || job.state === "waiting") return 0;
  const learnt = job.slices > 1 ? 0.7 : 0.9;  // of the work, roughly
  if (job.state === "finishing") return learnt + (1 - learnt) * job.done / job.slices;
  const iterations = job.iteration / job.max_iter;
  return job.stage === "learning" ? 0.15 + (learnt - 0.15) * iterations : 0.15 * iterations;
}

function drawCurve(bounds) {
  $("curve").hidden = bounds.length < 2;
  if (bounds.length < 2) return;
  const low = Math.min(...bounds), high = Math.max(...bounds);
  const points = bounds.map((bound, number) => [
    200 * number / (bounds.length - 1), 46 - 44 * (bound - low) / ((high - low) || 1),
  ]);
  $("curve").firstElementChild.setAttribute("points", points.join(" "));
}

// The restoration at hand.
export function showJob(job) {
  $("job").hidden = !job;
  if (!job) return;
  $("job-title").textContent = job.name;
  const said = sentence(job);
  if ($("job-state").textContent !== said) $("job-state").textContent = said;
  $("progress").hidden = job.state === "failed";
  $("progress").value = share(job);
  drawCurve(isUnderWay(job) ? job.bounds : []);
  $("running-actions").hidden = !isUnderWay(job);
  $("stop").hidden = job.state === "waiting";
  $("stop").disabled = job.stopping || (job.state === "finishing" && job.slices === 1);
  $("results").hidden = job.state !== "done";
  if (job.state !== "done") return;
  for (const what of ["result", "uncertainty", "report"]) $(`get-${what}`).href = `jobs/${job.id}/${what}`;
  const notes = [job.noise && `${job.noise[0].toUpperCase()}${job.noise.slice(1)}.`, ...job.notes].filter(Boolean);
  $("notes").replaceChildren(...notes.map((note) => {
    const entry = document.createElement("li");
    entry.textContent = note;
    return entry;
  }));
}

// All of them, the latest first.
export function showQueue(jobs, open, remove) {
  $("queue").hidden = !jobs.length;
  $("jobs").replaceChildren(...[...jobs].reverse().map((job) => {
    const entry = document.createElement("li"), name = document.createElement("span");
    const state = document.createElement("span");
    name.className = "name";
    name.textContent = `${job.name}, ${job.task === "denoise" ? "noise removed" : "filled in"}, ${job.preset}`;
    state.className = "quiet";
    state.textContent = sentence(job);
    entry.append(name, state);
    if (job.state !== "failed") entry.append(button("Show", `Show ${job.name}`, () => open(job)));
    entry.append(button("Remove", `Remove ${job.name}`, () => remove(job)));
    return entry;
  }));
}

function button(text, label, act) {
  const made = document.createElement("button");
  Object.assign(made, { type: "button", className: "plain", textContent: text });
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}
