"use strict";
// Sorts tables, switches curves off and on, and reads out points under the pointer or by keyboard.
// The page is complete without this script. Text is inserted as text, never as markup.
(() => {
  const said = document.getElementById("said");
  const say = (words) => { said.textContent = words; };

  // Tables.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  const empty = (value) => value === "" || value === "–";
  for (const button of document.querySelectorAll("thead button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const body = button.closest("table").tBodies[0];
      const column = head.cellIndex;
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentElement.cells) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = Array.from(body.rows, (row) => ({ row, value: valueOf(row, column) }));
      rows.sort((a, b) => {
        if (empty(a.value) || empty(b.value)) return empty(a.value) - empty(b.value);
        return down ? compare(b.value, a.value) : compare(a.value, b.value);
      });
      for (const { row } of rows) body.append(row);
      say(`Sorted by ${button.textContent}, ${down ? "descending" : "ascending"}`);
    });
  }

  // Charts.
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const figures = document.querySelectorAll("figure.drawn");
  figures.forEach((figure, number) => {
    const chart = charts[number];
    const series = chart.series.map((one) => ({ ...one, numbers: one.x.map((x, k) => [Number(x), Number(one.y[k])]) }));
    const hidden = new Set();
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    tip.setAttribute("aria-hidden", "true");
    figure.append(tip);

    const drawings = Array.from(figure.querySelectorAll("svg.chart"), (svg) => {
      const [xLow, xHigh] = svg.dataset.x.split(" ").map(Number);
      const [yLow, yHigh] = svg.dataset.y.split(" ").map(Number);
      const { width, height } = svg.viewBox.baseVal;
      const [left, bottom, right, top] = svg.dataset.box.split(" ").map(Number);
      const edge = { left: width * left, right: width * right, top: height * (1 - top), bottom: height * (1 - bottom) };
      for (const [tag, name] of [["path", "cross"], ["circle", "spot"]]) {
        const mark = document.createElementNS(svg.namespaceURI, tag);
        mark.setAttribute("class", name);
        svg.append(mark);
      }
      svg.querySelector(".spot").setAttribute("r", "5");
      const place = (value, low, high, log, begin, end) => {
        if (!log) return begin + ((end - begin) * (value - low)) / (high - low);
        return value <= 0 ? begin : begin + ((end - begin) * Math.log(value / low)) / Math.log(high / low);
      };
      const at = ([x, y]) => [
        place(x, xLow, xHigh, chart.x.log, edge.left, edge.right),
        place(y, yLow, yHigh, chart.y.log, edge.bottom, edge.top),
      ];
      return { svg, edge, at };
    });

    const leave = () => {
      tip.hidden = true;
      for (const { svg } of drawings) {
        svg.querySelector(".spot").setAttribute("cx", "-99");
        svg.querySelector(".cross").setAttribute("d", "");
      }
    };
    leave();
    let now = null;
    const show = (drawing, which, k, aloud) => {
      now = { which, k };
      const one = series[which];
      const [x, y] = drawing.at(one.numbers[k]);
      const { svg, edge } = drawing;
      svg.querySelector(".spot").setAttribute("cx", x);
      svg.querySelector(".spot").setAttribute("cy", y);
      svg.querySelector(".cross").setAttribute("d", `M${x} ${edge.top}V${edge.bottom}M${edge.left} ${y}H${edge.right}`);
      const lines = [`${chart.y.name} ${one.y[k]}${chart.y.unit && " " + chart.y.unit}`, `${chart.x.name} ${one.x[k]}${chart.x.unit && " " + chart.x.unit}`];
      tip.replaceChildren();
      const name = document.createElement("b");
      name.textContent = one.label;
      tip.append(name, ...lines.flatMap((line) => [line, document.createElement("br")]));
      tip.hidden = false;
      const outer = figure.getBoundingClientRect();
      const inner = svg.getBoundingClientRect();
      const scale = inner.width / svg.viewBox.baseVal.width;
      const left = inner.left - outer.left + x * scale;
      const top = inner.top - outer.top + y * scale;
      tip.style.left = `${Math.max(4, Math.min(left + 12, outer.width - tip.offsetWidth - 8))}px`;
      tip.style.top = `${top - tip.offsetHeight - 12 < 0 ? top + 14 : top - tip.offsetHeight - 12}px`;
      if (aloud) say(`${one.label}: ${lines.join(", ")}`);
    };

    for (const drawing of drawings) {
      const { svg } = drawing;
      const hover = (event) => {
        const box = svg.getBoundingClientRect();
        const scale = svg.viewBox.baseVal.width / box.width;
        const x = (event.clientX - box.left) * scale;
        const y = (event.clientY - box.top) * scale;
        let best = null;
        series.forEach((one, which) => {
          if (hidden.has(which)) return;
          one.numbers.forEach((point, k) => {
            const [a, b] = drawing.at(point);
            const far = (a - x) ** 2 + (b - y) ** 2;
            if (best === null || far < best.far) best = { far, which, k };
          });
        });
        if (best === null || best.far > 60 ** 2) leave();
        else show(drawing, best.which, best.k, false);
      };
      svg.addEventListener("pointermove", hover);
      svg.addEventListener("pointerdown", hover);
      // A touch pointer leaves when the finger lifts; the read-out must remain visible then.
      svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") leave(); });
      svg.addEventListener("blur", leave);
      // The chart handles keys from here on; the role tells screen readers so.
      svg.setAttribute("tabindex", "0");
      svg.setAttribute("role", "application");
      svg.setAttribute("aria-roledescription", "chart");
      svg.addEventListener("keydown", (event) => {
        const shown = series.map((_, which) => which).filter((which) => !hidden.has(which) && series[which].x.length);
        if (!shown.length) return;
        let { which, k } = now !== null && shown.includes(now.which) ? now : { which: shown[0], k: -1 };
        const last = series[which].x.length - 1;
        const turn = (by) => {
          const x = series[which].numbers[Math.max(k, 0)][0];
          which = shown[(shown.indexOf(which) + by + shown.length) % shown.length];
          const gaps = series[which].numbers.map((point) => Math.abs(point[0] - x));
          k = gaps.indexOf(Math.min(...gaps));
        };
        switch (event.key) {
          case "ArrowRight": k = Math.min(k + 1, last); break;
          case "ArrowLeft": k = Math.max(k - 1, 0); break;
          case "ArrowDown": turn(1); break;
          case "ArrowUp": turn(-1); break;
          case "Home": k = 0; break;
          case "End": k = last; break;
          case "Escape": leave(); return;
          default: return;
        }
        event.preventDefault();
        show(drawing, which, k, true);
      });
    }

    document.addEventListener("pointerdown", (event) => { if (!event.target.closest?.("svg.chart")) leave(); });
    window.addEventListener("resize", leave);

    figure.querySelectorAll(".legend button").forEach((button, which) => {
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        if (on) hidden.delete(which);
        else hidden.add(which);
        for (const { svg } of drawings) svg.querySelectorAll(".series")[which].classList.toggle("off", !on);
        leave();
      });
    });
  });
})();
