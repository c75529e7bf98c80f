/** The page: its frame, and the view that the address names. */
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { report, useAsk } from "./api";
import "./app.css";
import { time } from "./format";
import { CorrectView } from "./correct";
import { LakeView } from "./lake";
import { LineageView } from "./lineage";
import { Problem, speakOf, Waiting } from "./parts";
import { useRoute, type Route } from "./route";
import { TableView } from "./table";
import type { About } from "./types";

type Theme = "auto" | "light" | "dark";
const NEXT: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };

/** A path or URL that means the same in every folder. */
const WHOLE = /^(\/|[a-z][a-z0-9+.-]*:\/\/)/i;

function useTheme(): [Theme, () => void] {
  const [theme, set] = useState<Theme>(() => { try { return (localStorage.getItem("theme") as Theme | null) ?? "auto"; } catch { return "auto"; } });
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("theme", theme); } catch { /* it is only a wish */ }
  }, [theme]);
  return [theme, () => set(NEXT[theme])];
}

function Page() {
  const route = useRoute();
  const about = useAsk<About>("about");
  if (about.value) speakOf(WHOLE.test(about.value.warehouse) ? about.value.warehouse : about.value.url);
  const [theme, turn] = useTheme();
  const [now, tick] = useState(Date.now());
  useEffect(() => { const timer = setInterval(() => tick(Date.now()), 20_000); return () => clearInterval(timer); }, []);
  useEffect(() => {
    const keys = (event: KeyboardEvent): void => {
      const target = event.target as HTMLElement;
      if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) {
        const search = document.getElementById("search");
        if (search) { event.preventDefault(); search.focus(); }
      }
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  const place = route.path[0] ?? "";
  useEffect(() => {
    const title = place === "table" ? route.path[1] : place === "lineage" ? "Lineage" : place === "correct" ? "Correct" : "Tables";
    document.title = `${title} · Anabranch`;
    scrollTo(0, 0);
  }, [place, route.path[1]]);
  return (
    <>
      <a class="skip" href="#main" onClick={event => { event.preventDefault(); document.getElementById("main")?.focus(); }}>To the content</a>
      <header class="bar">
        <a class="logo" href={report?.start ?? "#/"}><Mark /><span>Anabranch</span></a>
        {!report && <nav aria-label="Main"><a href="#/" aria-current={place === "" || place === "table" ? "page" : undefined}>Tables</a><a href="#/lineage" aria-current={place === "lineage" ? "page" : undefined}>Lineage</a><a href="#/correct" aria-current={place === "correct" ? "page" : undefined}>Correct</a></nav>}
        <span class="where muted" title={about.value?.url}>{report ? `${report.title}, ${time(report.made).slice(0, 16)} UTC` : about.value?.warehouse}</span>
        <button type="button" class="theme" onClick={turn} aria-label={`Colours: ${theme}. Change`} title={`Colours: ${theme}`}>{theme === "auto" ? "◐" : theme === "light" ? "☀" : "☾"}</button>
      </header>
      <main id="main" tabIndex={-1}>
        {about.failure ? <Problem failure={about.failure} /> : <View route={route} now={report ? report.made : now} about={about.value} />}
      </main>
      <footer class="muted">Anabranch {about.value?.version} · times are UTC{report ? " · a report, made once" : about.value && !about.value.actions ? " · read only" : ""}</footer>
    </>
  );
}

function View({ route, now, about }: { route: Route; now: number; about: About | null }) {
  const [place, name] = route.path;
  if (!place) return <LakeView now={now} />;
  if (place === "table" && name) return <TableView key={name} name={name} given={route.arguments} now={now} />;
  if (place === "lineage") return <LineageView given={route.arguments} now={now} />;
  if (place === "correct") return !about ? <Waiting /> : <CorrectView given={route.arguments} about={about} now={now} />;
  return <p class="empty">There is no such page. <a href="#/">All tables</a></p>;
}

const Mark = () => <svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" class="mark-back" /><path d="M11 4v24M11 9c0 5 10 3 10 9s-10 3-10 8" class="mark-line" /></svg>;

const root = document.getElementById("page");
if (root) { root.textContent = ""; render(<Page />, root); }
