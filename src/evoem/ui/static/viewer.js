// The picture: as given, as restored, and a line between the two.

const $ = (id) => document.getElementById(id);

export class Viewer {
  constructor(moved) {
    $("slider").addEventListener("input", () => this.cut());
    $("slice").addEventListener("input", () => {
      $("slice-number").value = Number($("slice").value) + 1;
      moved();
    });
    addEventListener("resize", () => this.fit());
    this.size = [1, 1];
  }

  get slice() { return Number($("slice").value); }

  toSlice(number) {
    $("slice").value = number;
    $("slice-number").value = number + 1;
  }

  start(picture) {
    this.size = [picture.rows, picture.columns];
    $("slice").max = picture.slices - 1;
    this.toSlice(0);
    $("slices").hidden = picture.slices < 2;
    this.fit();
    this.hideAfter();
  }

  // As large as there is room for.
  fit() {
    const [rows, columns] = this.size, room = $("stage").clientWidth;
    const width = Math.min(room, 0.78 * innerHeight * columns / rows);
    $("frame").style.width = `${Math.max(width, Math.min(room, 120))}px`;
    $("frame").style.aspectRatio = `${columns} / ${rows}`;
  }

  before(address) { if ($("before").getAttribute("src") !== address) $("before").src = address; }

  // The new one takes the place of the one before when it is there.
  async after(address) {
    if (this.wanted === address) return;
    this.wanted = address;
    const loaded = new Image();
    loaded.src = address;
    try {
      await loaded.decode();
    } catch {
      return;
    }
    if (this.wanted !== address) return;
    $("after").src = address;
    this.compare(true);
  }

  hideAfter() {
    this.wanted = null;
    $("after").removeAttribute("src");
    this.compare(false);
  }

  compare(shown) {
    for (const id of ["after", "line", "slider", "left", "right"]) $(id).hidden = !shown;
    this.cut();
  }

  cut() { $("frame").style.setProperty("--at", `${$("slider").value}%`); }
}
