// The picture: as given, as restored, and a line between the two.

const MOST_ZOOM = 8;

const $ = (id) => document.getElementById(id);

export class Viewer {
  constructor(moved) {
    $("slider").addEventListener("input", () => this.cut());
    $("slice").addEventListener("input", () => {
      $("slice-number").value = Number($("slice").value) + 1;
      moved();
    });
    $("smaller").addEventListener("click", () => this.zoomTo(this.zoom / 2));
    $("larger").addEventListener("click", () => this.zoomTo(this.zoom * 2));
    addEventListener("resize", () => this.fit());
    this.size = [1, 1];
    this.zoom = 1;
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
    this.zoomTo(1);
    this.hideAfter();
  }

  // As large as there is room for, times the zoom.
  fit() {
    const [rows, columns] = this.size, room = $("stage").clientWidth;
    const width = Math.min(room, 0.78 * innerHeight * columns / rows);
    $("frame").style.width = `${this.zoom * Math.max(width, Math.min(room, 120))}px`;
    $("frame").style.aspectRatio = `${columns} / ${rows}`;
  }

  // What is in the middle stays there.
  zoomTo(zoom) {
    const view = $("window");
    const middle = [
      (view.scrollLeft + view.clientWidth / 2) / view.scrollWidth,
      (view.scrollTop + view.clientHeight / 2) / view.scrollHeight,
    ];
    this.zoom = zoom;
    this.fit();
    view.scrollLeft = middle[0] * view.scrollWidth - view.clientWidth / 2;
    view.scrollTop = middle[1] * view.scrollHeight - view.clientHeight / 2;
    $("zoomed").value = `${zoom}×`;
    $("smaller").disabled = zoom <= 1;
    $("larger").disabled = zoom >= MOST_ZOOM;
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
