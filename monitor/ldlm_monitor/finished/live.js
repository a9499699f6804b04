// Keeps a page as it is now: its ages tick, and its main part is fetched anew when the state changes.
// Without this script the page has everything, as of the time at its top.
(() => {
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const span = (seconds) => {
    let rest = Math.max(0, Math.round(seconds));
    const parts = [];
    for (const [unit, size] of units) {
      const count = Math.floor(rest / size);
      rest -= count * size;
      if (count || parts.length) parts.push(`${count}${unit}`);
    }
    return parts.slice(0, 2).filter((part) => !part.startsWith("0")).join(" ") || "0s";
  };
  const main = () => document.querySelector("main");
  const status = document.getElementById("live"), filter = document.getElementById("filter");
  let skew = 0, wanted = false, busy = false, fetchedAt = Date.now(), lostAt = 0;
  const read = () => { skew = Number(main().dataset.now) - Date.now() / 1000; };
  const tick = () => {
    const now = Date.now() / 1000 + skew;
    for (const each of document.querySelectorAll("time[data-age]")) {
      const shown = span(now - each.dataset.age);
      if (each.textContent !== shown) each.textContent = shown;
    }
    const said = lostAt ? `no answer for ${span((Date.now() - lostAt) / 1000)}` : "live";
    if (status.textContent !== said) status.textContent = said;
    status.className = lostAt ? "lost" : "";
  };
  const sift = () => {
    if (!filter) return;
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of main().querySelectorAll("[data-row]")) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      count += !row.hidden;
    }
    main().querySelector("[data-none]").hidden = count > 0;
  };
  const replace = (fresh) => {
    const opened = new Set([...main().querySelectorAll("details")].map((each) => each.open && each.innerText.split("\n")[0]));
    const link = document.activeElement?.closest("main a")?.getAttribute("href");
    const at = [scrollX, scrollY];
    main().replaceWith(document.adoptNode(fresh.querySelector("main")));
    for (const each of main().querySelectorAll("details")) {
      if (opened.has(each.querySelector("summary").innerText.split("\n")[0])) each.open = true;
    }
    if (link) main().querySelector(`a[href="${CSS.escape(link)}"]`)?.focus({ preventScroll: true });
    document.title = fresh.title;
    scrollTo(...at);
    read();
    sift();
    tick();
    document.dispatchEvent(new Event("replaced"));
  };
  const reading = () => main().querySelector(".read") || !getSelection().isCollapsed;
  const renew = async () => {
    if (busy || document.hidden || reading()) return;
    if (Date.now() - fetchedAt < 1000 * main().dataset.every) return;
    busy = true;
    wanted = false;
    fetchedAt = Date.now();
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      lostAt = 0;
    } catch {
      lostAt ||= Date.now();
      wanted = true;
    }
    busy = false;
  };
  const listen = () => {
    const source = new EventSource(main().dataset.stream);
    source.addEventListener("snapshot", () => { wanted = true; renew(); });
    source.onerror = () => {
      wanted = true; // a refused stream is asked for again; until then the page is fetched by time
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 10000);
    };
  };
  filter?.addEventListener("input", sift);
  filter?.form.addEventListener("submit", (event) => { event.preventDefault(); sift(); });
  document.addEventListener("visibilitychange", renew);
  setInterval(() => {
    if (wanted || Date.now() - fetchedAt > 15000) renew();
    tick();
  }, 1000);
  read();
  sift();
  tick();
  listen();
})();
