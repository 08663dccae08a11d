import { escapeHtml, htmlPage } from '../../lib/html.ts'

/** What a person sees at the root of a server whose dashboard has not been built. `origin` is where they came to, as they wrote it. */
export function landingPage(version: string, origin: string): string {
  const call = `export ATOLL_API_KEY=atoll_…   # printed at the first start

curl ${origin}/v1/sessions \\
  -H "X-API-Key: $ATOLL_API_KEY" -H 'Content-Type: application/json' \\
  -d '{"prompt": "A page about coral reefs", "user_id": "ada"}'`
  const body = `<main>
<p class="mark"><span aria-hidden="true"></span>Atoll <small>${escapeHtml(version)}</small></p>
<h1>Cloud sandboxes and agent sessions, on your own machine.</h1>
<p class="lead">This is the API. Start a session and an agent builds what you ask for in a sandbox of its own, with a preview that you can open at once.</p>
<pre><code>${escapeHtml(call)}</code></pre>
<p class="note">The dashboard has not been built. <code>npm run setup</code> builds it, and the next start of the server shows it here.</p>
<ul>
<li><a href="/docs"><b>Documentation</b><span>How to use it, and how to run it</span></a></li>
<li><a href="/docs/api"><b>Reference</b><span>Every call, field and error</span></a></li>
<li><a href="/openapi.json"><b>openapi.json</b><span>The same for programs, OpenAPI 3.1</span></a></li>
<li><a href="/readyz"><b>Health</b><span>Whether this server takes requests</span></a></li>
</ul>
</main>`
  return htmlPage({ title: 'Atoll', style, body })
}

const style = `
main{max-width:46rem;margin:0 auto;padding:12vh 1.5rem 4rem}
.mark{display:flex;align-items:center;gap:.6rem;margin:0 0 2.5rem;font-weight:650;font-size:1.15rem}
.mark small{color:var(--soft);font-weight:400;font-size:.85rem}
.mark span{width:1.35rem;height:1.35rem;border:.32rem solid var(--accent);border-right-color:transparent;border-radius:50%;rotate:-30deg}
h1{margin:0 0 1rem;font-size:clamp(1.7rem,5vw,2.5rem);letter-spacing:-.02em}
.lead{margin:0 0 1.75rem;color:var(--soft);font-size:1.1rem;max-width:38rem}
.note{margin:1.25rem 0 0;color:var(--soft)}
ul{list-style:none;margin:1.25rem 0 0;padding:0;display:grid;grid-template-columns:repeat(auto-fit,minmax(12rem,1fr));gap:.75rem}
li a{display:block;height:100%;padding:.8rem 1rem;border:1px solid var(--line);border-radius:.5rem;text-decoration:none}
li a:hover,li a:focus-visible{border-color:var(--accent)}
li span{display:block;color:var(--soft);font-size:.9rem}`
