// What a visitor does, and what the page shows then.

import * as talk from "./talk.js";
import { Mask } from "./paint.js";
import { Viewer } from "./viewer.js";
import { isUnderWay, showJob, showQueue } from "./jobs.js";

const $ = (id) => document.getElementById(id);
const chosen = (name) => document.querySelector(`input[name=${name}]:checked`).value;

let picture = null;  // at hand
let job = null;  // the number of the restoration at hand
let jobs = [];
let painted = false;  // whether the mask has changed since the program was told

const viewer = new Viewer(show);
const mask = new Mask($("mask"), $("cursor"), () => { painted = true; showMask(); });

function fail(error) {
  $("error").textContent = error ? error.message : "";
  $("error").hidden = !error;
  if (error) $("error").scrollIntoView({ block: "nearest" });
}

// Do something, and say so if it cannot be done.
function trying(act) {
  return async (...given) => {
    fail(null);
    try {
      await act(...given);
    } catch (error) {
      fail(error);
    }
  };
}

const current = () => jobs.find((one) => one.id === job);

// ------------------------------------------------------------------------------ pictures

const take = trying(async (file) => {
  if (!file) return;
  document.body.classList.add("busy");
  try {
    const given = await talk.addPicture(file);
    job = null;
    start(given);
  } finally {
    document.body.classList.remove("busy");
    $("file").value = "";
  }
});

function start(given) {
  picture = given;
  painted = false;
  $("drop").hidden = true;
  $("viewer").hidden = $("controls").hidden = false;
  viewer.start(picture);
  mask.start(picture.rows, picture.columns);
  const size = `${picture.rows} × ${picture.columns}`;
  const channels = picture.channels > 1 ? `, ${picture.channels} channels` : "";
  const slices = picture.slices > 1 ? `, ${picture.slices} slices` : "";
  const empty = picture.empty ? ` ${picture.empty} values are missing.` : "";
  $("about").textContent = `${picture.name}: ${size}${channels}${slices}, ${picture.type}.${empty} ${picture.notes.join(" ")}`;
  showMasked();
  show();
}

function show() {
  if (!picture) return;
  const one = current();
  viewer.before(talk.before(picture.id, viewer.slice));
  if (one && (viewer.slice < one.done || (one.previews && isUnderWay(one)))) {
    viewer.after(talk.after(one.id, viewer.slice, `${one.previews}-${one.done}`));
  } else {
    viewer.hideAfter();
  }
  showMask();
  showJob(one);
  const busy = one && isUnderWay(one);
  $("run").hidden = busy;
}

// ---------------------------------------------------------------------------------- mask

function showMask() {
  const wanted = chosen("task") === "inpaint";
  $("masking").hidden = !wanted;
  const paints = wanted && !job && mask.paintable;
  $("mask").hidden = !paints;
  $("undo").disabled = !mask.canUndo;
  if (!paints) $("cursor").hidden = true;
}

function showMasked() {
  const words = picture.masked ? `${picture.masked} pixels are marked.` : "";
  $("masked").textContent = mask.paintable ? words : `${words} This picture is too large to paint on: load a mask.`;
}

// A mask that is changed belongs to a new restoration.
function anew() {
  job = null;
  show();
}

function undo() {
  if (!mask.canUndo) return;
  mask.undo();
  painted = true;
  anew();
}

$("undo").addEventListener("click", undo);
addEventListener("keydown", (event) => {
  if (event.key !== "z" || !(event.ctrlKey || event.metaKey) || $("masking").hidden) return;
  event.preventDefault();
  undo();
});
$("clear").addEventListener("click", () => { mask.keep(); mask.clear(); painted = true; anew(); });
$("brush").addEventListener("input", () => { mask.brush = Number($("brush").value); });
for (const tool of document.querySelectorAll("input[name=tool]")) {
  tool.addEventListener("change", () => { mask.erases = chosen("tool") === "erase"; anew(); });
}
$("mask-file").addEventListener("change", trying(async () => {
  const [file] = $("mask-file").files;
  $("mask-file").value = "";
  if (!file) return;
  picture = await talk.addMask(picture.id, file, file.name);
  painted = false;
  anew();
  showMasked();
  if (mask.paintable) mask.keep();
  if (mask.paintable) await mask.show(talk.mask(picture.id, Date.now()));
}));

// ------------------------------------------------------------------------------------ jobs

$("run").addEventListener("click", trying(async () => {
  const task = chosen("task");
  $("run").disabled = true;
  try {
    if (task === "inpaint" && painted) {
      picture = await talk.addMask(picture.id, await mask.file(), "mask.png");
      painted = false;
      showMasked();
    }
    const wish = { picture: picture.id, task, preset: chosen("preset"), keep: $("keep").checked };
    const { id } = await talk.addJob(wish);
    viewer.hideAfter();
    job = id;
    show();
    $("job").scrollIntoView({ block: "nearest" });
  } finally {
    $("run").disabled = false;
  }
}));

$("stop").addEventListener("click", trying(() => talk.stop(job)));
$("discard").addEventListener("click", trying(async () => {
  await talk.remove(job);
  anew();
}));
$("another").addEventListener("click", () => $("file").click());

const open = trying(async (one) => {
  if (picture?.id !== one.picture) start({ ...one.given, id: one.picture });
  job = one.id;
  show();
  $("stage").scrollIntoView({ block: "nearest" });
});

const remove = trying(async (one) => {
  await talk.remove(one.id);
  if (job === one.id) anew();
});

talk.listen((told) => {
  const focused = document.activeElement?.closest("#jobs") && document.activeElement.getAttribute("aria-label");
  jobs = told;
  showQueue(jobs, open, remove);
  if (focused) document.querySelector(`#jobs button[aria-label=${CSS.escape(focused)}]`)?.focus();
  if (job && current()) show();
}, () => fail(new Error("The program was closed.")));

// -------------------------------------------------------------------------- giving pictures

$("file").addEventListener("change", () => take($("file").files[0]));
for (const task of document.querySelectorAll("input[name=task]")) task.addEventListener("change", anew);
addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("over"); });
addEventListener("dragleave", () => document.body.classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  take(event.dataTransfer.files[0]);
});
addEventListener("paste", (event) => take(event.clipboardData.files[0]));
