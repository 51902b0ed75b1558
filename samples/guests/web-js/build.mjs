// Makes a component of app.js.
import { writeFile } from "node:fs/promises";
import { componentize } from "@bytecodealliance/componentize-js";

const { component } = await componentize({ sourcePath: "app.js", witPath: "wit", worldName: "web" });
await writeFile("web-js.wasm", component);
