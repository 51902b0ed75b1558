// The `web` guest in JavaScript: a `wasi:http` component that greets.
import { getEnvironment } from "wasi:cli/environment@0.2.10";

addEventListener("fetch", (event) => {
  const { GREETING = "" } = Object.fromEntries(getEnvironment());
  const { pathname, search } = new URL(event.request.url);
  event.respondWith(new Response(`Hello from JavaScript! ${GREETING}${pathname}${search}\n`));
});
