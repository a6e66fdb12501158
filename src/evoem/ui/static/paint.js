// A mask that is painted over the picture, pixel for pixel.

const COLOUR = "#e63333";
// Browsers have no larger canvas everywhere.
const MOST_PIXELS = 64e6;
// Of masks before the latest strokes; of large pictures one is kept.
const MOST_KEPT = 32, MOST_BYTES_KEPT = 128e6;

export class Mask {
  constructor(canvas, cursor, changed) {
    this.canvas = canvas;
    this.cursor = cursor;
    this.changed = changed;
    this.brush = 12;
    this.erases = false;
    this.last = null;
    this.place = [0, 0];
    this.past = [];
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      canvas.setPointerCapture(event.pointerId);
      this.keep();
      this.dab(this.at(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      this.point(this.at(event));
      if (this.last) this.dab(this.at(event));
    });
    const lift = () => { if (this.last) { this.last = null; this.changed(); } };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("pointerleave", () => { this.cursor.hidden = true; });
    canvas.addEventListener("focus", () => {
      if (canvas.matches(":focus-visible")) this.point(this.place);
    });
    canvas.addEventListener("blur", () => { this.cursor.hidden = true; });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  // An empty mask of so many rows and columns; false if it would be too large to paint.
  start(rows, columns) {
    this.paintable = rows * columns <= MOST_PIXELS;
    this.canvas.width = this.paintable ? columns : 1;
    this.canvas.height = this.paintable ? rows : 1;
    this.place = [columns / 2, rows / 2];
    this.past = [];
    return this.paintable;
  }

  get context() { return this.canvas.getContext("2d", { willReadFrequently: true }); }

  // The brush is as wide as its share of the picture's width.
  get width() { return Math.max(1, this.canvas.width * this.brush / 400); }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [
      (event.clientX - box.left) / box.width * this.canvas.width,
      (event.clientY - box.top) / box.height * this.canvas.height,
    ];
  }

  point([x, y]) {
    this.place = [x, y];
    const scale = this.canvas.getBoundingClientRect().width / this.canvas.width;
    const size = Math.max(4, this.width * scale);
    Object.assign(this.cursor.style, {
      left: `${x / this.canvas.width * 100}%`, top: `${y / this.canvas.height * 100}%`,
      width: `${size}px`, height: `${size}px`,
    });
    this.cursor.hidden = false;
  }

  dab([x, y]) {
    const context = this.context, from = this.last ?? [x, y];
    context.globalCompositeOperation = this.erases ? "destination-out" : "source-over";
    context.strokeStyle = context.fillStyle = COLOUR;
    if (this.width < 3) {  // whole pixels
      const size = Math.round(this.width), steps = Math.ceil(Math.hypot(x - from[0], y - from[1])) || 1;
      for (let step = 0; step <= steps; step += 1) {
        const part = step / steps;
        context.fillRect(
          Math.floor(from[0] + part * (x - from[0]) - (size - 1) / 2),
          Math.floor(from[1] + part * (y - from[1]) - (size - 1) / 2), size, size,
        );
      }
    } else {
      context.lineWidth = this.width;
      context.lineCap = "round";
      context.beginPath();
      context.moveTo(...from);
      context.lineTo(x, y);
      context.stroke();
    }
    this.last = [x, y];
  }

  key(event) {
    const step = Math.max(1, this.width / 2) * (event.shiftKey ? 4 : 1);
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.key in moves) {
      const [x, y] = this.place, [right, down] = moves[event.key];
      this.point([
        Math.min(Math.max(x + right, 0), this.canvas.width - 1),
        Math.min(Math.max(y + down, 0), this.canvas.height - 1),
      ]);
    } else if (event.key === " ") {
      this.keep();
      this.dab(this.place);
      this.last = null;
      this.changed();
    } else if (event.key === "Escape") {
      this.canvas.blur();
      return;
    } else return;
    event.preventDefault();
  }

  // Keep the mask as it is, to come back to.
  keep() {
    const { width, height } = this.canvas, room = Math.floor(MOST_BYTES_KEPT / (4 * width * height));
    this.past.push(this.context.getImageData(0, 0, width, height));
    this.past.splice(0, this.past.length - Math.max(1, Math.min(MOST_KEPT, room)));
  }

  get canUndo() { return this.past.length > 0; }

  undo() {
    const before = this.past.pop();
    if (before) this.context.putImageData(before, 0, 0);
  }

  clear() { this.context.clearRect(0, 0, this.canvas.width, this.canvas.height); }

  // Show a mask that the program read from a file, white where something is missing.
  async show(address) {
    const picture = new Image();
    picture.src = address;
    await picture.decode();
    this.clear();
    const context = this.context, { width, height } = this.canvas;
    context.globalCompositeOperation = "source-over";
    context.drawImage(picture, 0, 0, width, height);
    const pixels = context.getImageData(0, 0, width, height);
    for (let place = 0; place < pixels.data.length; place += 4) {
      const marked = pixels.data[place] > 127;
      pixels.data.set(marked ? [230, 51, 51, 255] : [0, 0, 0, 0], place);
    }
    context.putImageData(pixels, 0, 0);
  }

  // A PNG file, white where something is missing.
  async file() {
    const { width, height } = this.canvas;
    const pixels = this.context.getImageData(0, 0, width, height);
    for (let place = 0; place < pixels.data.length; place += 4) {
      const level = pixels.data[place + 3] > 127 ? 255 : 0;
      pixels.data.set([level, level, level, 255], place);
    }
    const canvas = new OffscreenCanvas(width, height);
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    return canvas.convertToBlob({ type: "image/png" });
  }
}
