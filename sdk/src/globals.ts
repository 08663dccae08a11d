/// <reference lib="esnext.disposable" preserve="true" />
/**
 * The types of the platform that this package names. Each merges with that of the DOM or of Node; a project with neither can still check
 * its own code.
 */
declare global {
  interface AbortSignal {}
  interface Blob {}
  interface Headers {}
  // oxlint-disable-next-line typescript/no-explicit-any -- as the DOM and Node declare it: merged interfaces have equal parameters
  interface ReadableStream<R = any> {}
  interface RequestInit {}
  interface Response {}
  interface URL {}
}

/** What this package needs of `fetch`. */
export type Fetch = (url: URL, init: RequestInit) => Promise<Response>
