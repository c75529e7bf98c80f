/** A line over time. */
import { useMemo } from "preact/hooks";
import { places, time } from "./format";
import { useWidth } from "./parts";

const HEIGHT = 120, PAD = 6, MOST = 400;

/** Points are time, snapshot and value. */
export function Trend({ points: given, show, label }: { points: [number, number, number][]; show: (value: number) => string; label: string }) {
  const [box, width] = useWidth();
  const points = useMemo(() => {
    const ordered = [...given].sort((a, b) => b[1] - a[1]), at = places(ordered.map(([millis]) => millis));
    return ordered.map(([, , value], i): [number, number] => [at[i]!, value]).sort((a, b) => a[0] - b[0]);
  }, [given]);
  const drawn = useMemo(() => (points.length <= MOST ? points : points.filter((_, i) => i % Math.ceil(points.length / MOST) === 0 || i === points.length - 1)), [points]);
  const first = drawn[0], last = drawn[drawn.length - 1];
  if (!first || !last) return <div ref={box}><p class="empty">Nothing was written yet.</p></div>;
  const most = Math.max(1, ...drawn.map(([, value]) => value)), reach = Math.max(1, last[0] - first[0]);
  const x = (millis: number): number => PAD + ((millis - first[0]) / reach) * (width - 2 * PAD);
  const y = (value: number): number => HEIGHT - PAD - (value / most) * (HEIGHT - 3 * PAD);
  const path = drawn.length === 1 ? `M${PAD} ${y(first[1])}H${width - PAD}` : drawn.map(([millis, value], i) => (i ? `H${x(millis).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(millis).toFixed(1)} ${y(value).toFixed(1)}`)).join("");
  return (
    <div ref={box}>
      <svg class="trend" width={width} height={HEIGHT} role="img" aria-label={`${label}: from ${show(first[1])} at ${time(first[0])} to ${show(last[1])} at ${time(last[0])}`}>
        <path class="area" d={`${path}V${HEIGHT - PAD}H${PAD}Z`} />
        <path class="line" d={path} />
      </svg>
      <p class="axis"><span>{time(first[0]).slice(0, 16)}</span><b>{show(last[1])}</b><span>{time(last[0]).slice(0, 16)}</span></p>
    </div>
  );
}
