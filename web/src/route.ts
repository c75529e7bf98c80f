/** The address behind `#`: a path and arguments, so that every view can be linked and gone back to. */
import { useEffect, useState } from "preact/hooks";
import { query, report, type Arguments } from "./api";

export interface Route { path: string[]; arguments: URLSearchParams }

export const to = (path: string[], given: Arguments = {}): string => {
  const text = query(given);
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
};

function read(): Route {
  const [path = "", text = ""] = (location.hash || report?.start || "#/").replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(part => { try { return decodeURIComponent(part); } catch { return part; } });
  return { path: parts, arguments: new URLSearchParams(text) };
}

export function useRoute(): Route {
  const [route, set] = useState(read);
  useEffect(() => {
    const moved = (): void => set(read());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return route;
}

export const go = (address: string, replace = false): void => {
  if (replace) { history.replaceState(null, "", address); dispatchEvent(new HashChangeEvent("hashchange")); } else location.hash = address;
};
