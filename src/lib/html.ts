/** The style of every page of the server: no script, no external resources, light or dark by the reader's preference. */
export const pageStyle = `
:root{color-scheme:light dark;--ink:#12262b;--paper:#fbfcfc;--soft:#5b6f75;--line:#d9e2e4;--panel:#f0f5f6;--accent:#0a7384;--warn:#b4432f}
@media(prefers-color-scheme:dark){:root{--ink:#e3edef;--paper:#0f1a1d;--soft:#93a8ae;--line:#26383d;--panel:#16252a;--accent:#4cc3d5;--warn:#f08a72}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif}
a{color:var(--accent);text-underline-offset:.15em}
h1,h2,h3{line-height:1.2;text-wrap:balance}
code,pre{font:.9em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{margin:0;padding:1rem;overflow:auto;background:var(--panel);border:1px solid var(--line);border-radius:.5rem}`

/** Content security policy of a page with an inline style and nothing else, which may be framed. */
export const framedPagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
/** The same for a page that may not. */
export const pagePolicy = `${framedPagePolicy}; frame-ancestors 'none'`

/** Content security policy of a page whose scripts and calls are of its own origin, with this source of its styles. */
export function scriptedPolicy(styles: string): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    `style-src ${styles}`,
    "connect-src 'self'",
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ')
}

export function escapeHtml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;')
}

/** A complete document. `title` is text, the rest is markup. */
export function htmlPage({ title, style = '', head = '', body }: HtmlPage): string {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">${head}
<title>${escapeHtml(title)}</title><style>${pageStyle}${style}</style></head>
<body>${body}</body></html>
`
}

interface HtmlPage {
  title: string
  style?: string
  head?: string
  body: string
}
