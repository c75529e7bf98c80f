/** Small parts that all views use. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Asked, Failure, Live } from "./api";
import { capital, quoted } from "./format";
import type { Damage } from "./types";

export function Problem({ failure }: { failure: Failure }) {
  return <div class="problem" role="alert"><strong>{failure.message}</strong>{failure.hint && <p>{failure.hint}</p>}</div>;
}

/** Names each file that could not be read, with the next step; everything else of the page is there. */
export function Damaged({ found }: { found: Damage[] | undefined }) {
  if (!found?.length) return null;
  return (
    <div class="problem" role="alert">
      <strong>{found.length === 1 ? "One file cannot be read; all else is shown." : `${found.length} files cannot be read; all else is shown.`}</strong>
      <ul class="plain">{found.map(one => <li key={one.message}><b>{one.what}</b>: {one.message}{one.hint && <p>{capital(one.hint)}</p>}{one.command && <div><Command text={one.command} /></div>}</li>)}</ul>
    </div>
  );
}

/** Shows an answer, that it is on its way, or why there is none. */
export function Shown<T>({ asked, children }: { asked: Asked<T>; children: (value: T) => ComponentChildren }) {
  if (asked.failure) return <Problem failure={asked.failure} />;
  if (asked.value === null) return <Waiting />;
  return <>{children(asked.value)}</>;
}

export function Waiting() {
  const [late, set] = useState(false);
  useEffect(() => { const timer = setTimeout(() => set(true), 250); return () => clearTimeout(timer); }, []);
  return late ? <p class="waiting" role="status">Reading…</p> : <p class="waiting" />;
}

export function Card({ title, children, aside, id }: { title?: string; children: ComponentChildren; aside?: ComponentChildren; id?: string }) {
  return (
    <section class="card" id={id}>
      {title && <header><h2>{title}</h2>{aside}</header>}
      {children}
    </section>
  );
}

export function Fact({ name, children, tone }: { name: string; children: ComponentChildren; tone?: string }) {
  return <div class={`fact ${tone ?? ""}`}><dt>{name}</dt><dd>{children}</dd></div>;
}

/** The warehouse that commands are about, as it was named with the server. */
let warehouse = "";
export const speakOf = (named: string): void => { warehouse = named; };

/** A command to run next, wherever one is, with a button that copies it. */
export function Command({ text: given }: { text: string }) {
  const [done, set] = useState(false);
  const text = warehouse ? given.replace(/^anabranch /, () => `anabranch -w ${quoted(warehouse)} `) : given;
  const copy = (): void => {
    navigator.clipboard?.writeText(text).then(() => { set(true); setTimeout(() => set(false), 1500); }, () => undefined);
  };
  return (
    <span class="command">
      <code>{text}</code>
      <button type="button" onClick={copy} aria-label={`Copy the command ${text}`}>{done ? "copied" : "copy"}</button>
    </span>
  );
}

export const tone = (score: number): string => (score >= 90 ? "good" : score >= 60 ? "fair" : "bad");

export function Health({ score }: { score: number }) {
  return <span class={`health ${tone(score)}`} title={`Health ${score} of 100`}><i aria-hidden="true" />{score}<span class="unseen"> of 100 health</span></span>;
}

/** Whether the page is told of changes while one looks. */
export function LiveMark({ live }: { live: Live }) {
  if (live.on) return <span class="live"><i aria-hidden="true" />live</span>;
  return live.why === null ? null : <span class="muted" role="status">Not live: {live.why}.</span>;
}

export function Badge({ kind, children, title }: { kind: string; children: ComponentChildren; title?: string }) {
  return <span class={`badge ${kind}`} title={title}>{children}</span>;
}

/** A table that scrolls by itself where the screen is narrow. */
export function Grid({ head, children, label }: { head: ComponentChildren; children: ComponentChildren; label: string }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table><thead><tr>{head}</tr></thead><tbody>{children}</tbody></table>
    </div>
  );
}

interface Many { count: number; height: number; children: (index: number) => JSX.Element; label: string; onSeen?: (first: number, last: number) => void; tall?: number; under?: ComponentChildren; chosen?: number | null }

/** A list of which only what is on the screen is made, however long it is. The arrow keys lead through it. */
export function Many({ count, height, children, label, onSeen, tall, under, chosen }: Many) {
  const box = useRef<HTMLDivElement>(null);
  const [range, set] = useState<[number, number]>([0, 30]);
  const look = (): void => {
    const element = box.current;
    if (!element) return;
    const top = tall ? element.scrollTop : Math.max(0, -element.getBoundingClientRect().top);
    const seen = tall ? element.clientHeight : innerHeight;
    const first = Math.max(0, Math.floor(top / height) - 5), last = Math.min(count, Math.ceil((top + seen) / height) + 5);
    set(old => (old[0] === first && old[1] === last ? old : [first, last]));
  };
  useEffect(() => {
    look();
    const target: HTMLElement | Window | null = tall ? box.current : window;
    target?.addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => { target?.removeEventListener("scroll", look); removeEventListener("resize", look); };
  }, [count, height, tall]);
  const [first, last] = [Math.min(range[0], count), Math.min(range[1], count)];
  useEffect(() => onSeen?.(first, last), [first, last, count, onSeen]);
  const move = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    const item = (event.target as HTMLElement).closest<HTMLElement>("[data-index]");
    if (!step || !item || !box.current) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(count - 1, Number(item.dataset.index) + step));
    if (tall) {
      const view = box.current;
      if (next * height < view.scrollTop) view.scrollTop = next * height;
      if ((next + 1) * height > view.scrollTop + view.clientHeight) view.scrollTop = (next + 1) * height - view.clientHeight;
    }
    const focus = (): boolean => {
      const found = box.current?.querySelector<HTMLElement>(`[data-index="${next}"] a, [data-index="${next}"] button`);
      found?.focus();
      return !!found;
    };
    if (!focus()) { look(); requestAnimationFrame(focus); }
  };
  const items: JSX.Element[] = [];
  for (let i = first; i < last; i++)
    items.push(<li key={i} data-index={i} class={i === chosen ? "chosen" : undefined} style={{ top: `${i * height}px`, height: `${height}px` }}>{children(i)}</li>);
  return (
    <div ref={box} class={tall ? "many tall" : "many"} style={tall ? { maxHeight: `${tall}px` } : undefined} onKeyDown={move} tabIndex={tall ? 0 : undefined} role={tall ? "region" : undefined} aria-label={tall ? label : undefined}>
      {under}
      <ul aria-label={label} style={{ height: `${count * height}px` }}>{items}</ul>
    </div>
  );
}

/** The width of an element, as it changes. */
export function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, set] = useState(800);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(([entry]) => { if (entry) set(Math.max(200, Math.floor(entry.contentRect.width))); });
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}
