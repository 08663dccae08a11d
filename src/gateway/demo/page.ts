import { escapeHtml } from '../../lib/html.ts'

/** Insertion point of the next change: an edit replaces this comment by a card and itself. Prompts are escaped and cannot contain it. */
export const changesMarker = '<!-- changes -->'

const titleCharactersMax = 60
const titleWordsMax = 8
const quoteCharactersMax = 600
const changeCharactersMax = 4000

/** The first words of a prompt as a title. Plain text: escape it. */
export function titleOf(prompt: string): string {
  const words = plainText(prompt, 400).split(' ').slice(0, titleWordsMax)
  let title = ''
  for (const word of words) {
    if (title !== '' && title.length + 1 + word.length > titleCharactersMax) break
    title += title === '' ? word.slice(0, titleCharactersMax) : ` ${word}`
  }
  const trimmed = title.toWellFormed().replace(/[\s.,;:!?]+$/u, '') || 'Hello from your sandbox'
  const [first = '', ...rest] = trimmed
  return first.toUpperCase() + rest.join('')
}

/** One line without control characters. */
export function plainText(text: string, charactersMax: number): string {
  // Far more than is shown, far less than a prompt may hold.
  const line = text
    .slice(0, charactersMax * 4)
    .toWellFormed()
    .replaceAll(/[\p{Cc}\s]+/gu, ' ')
    .trim()
  return line.length <= charactersMax ? line : `${line.slice(0, charactersMax).toWellFormed()}…`
}

/** The card of one follow-up message. */
export function changeCard(prompt: string, number: number): string {
  return `<article class="card change">
        <span class="tag">Change ${number}</span>
        <p>${escapeHtml(plainText(prompt, changeCharactersMax))}</p>
      </article>`
}

export function demoPage(title: string, prompt: string, changes: readonly string[]): string {
  const cards = changes.map((change, index) => `${changeCard(change, index + 1)}\n      `).join('')
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>${escapeHtml(title)}</title>
    <link rel="stylesheet" href="styles.css" />
  </head>
  <body>
    <header class="hero">
      <span class="tag">Live from a sandbox</span>
      <h1>${escapeHtml(title)}</h1>
      <p class="lead">An agent built this page with real tool calls and serves it to you right now.</p>
      <button type="button" id="cheer">Say hello <b id="count">0</b></button>
    </header>
    <main class="grid">
      <article class="card wide">
        <span class="tag">You asked for</span>
        <blockquote>${escapeHtml(plainText(prompt, quoteCharactersMax))}</blockquote>
      </article>
      <article class="card">
        <span class="tag">What happened</span>
        <ol>
          <li>Wrote <code>index.html</code> and <code>styles.css</code></li>
          <li>Started a web server in the sandbox</li>
          <li>Checked that it answers</li>
        </ol>
      </article>
      <article class="card">
        <span class="tag">What comes next</span>
        <p>Send another message: the agent edits this page, and a reload shows the change.</p>
      </article>
      ${cards}${changesMarker}
    </main>
    <footer>Built by the demo model, which needs no key. Configure a model for the real thing.</footer>
    <script>
      const count = document.getElementById('count')
      document.getElementById('cheer').addEventListener('click', () => {
        count.textContent = String(Number(count.textContent) + 1)
      })
    </script>
  </body>
</html>
`
}

/** A style sheet with colours from the title, so that pages differ. */
export function styles(title: string): string {
  let hue = 7
  for (const character of title) hue = (hue * 31 + (character.codePointAt(0) ?? 0)) % 360
  return `:root {
  --accent: hsl(${hue} 75% 52%);
  --accent-2: hsl(${(hue + 50) % 360} 80% 56%);
  --ink: hsl(${hue} 30% 14%);
  --soft: hsl(${hue} 40% 97%);
  --card: #fff;
  --line: hsl(${hue} 25% 88%);
}
@media (prefers-color-scheme: dark) {
  :root { --ink: hsl(${hue} 25% 94%); --soft: hsl(${hue} 28% 9%); --card: hsl(${hue} 24% 14%); --line: hsl(${hue} 20% 24%); }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--soft); color: var(--ink); font: 17px/1.6 system-ui, sans-serif; }
.hero {
  padding: clamp(3rem, 10vw, 7rem) 1.5rem; text-align: center; color: #fff;
  background: linear-gradient(135deg, var(--accent), var(--accent-2));
}
h1 { margin: 0.6rem auto; max-width: 18ch; font-size: clamp(2rem, 6vw, 3.75rem); line-height: 1.1; overflow-wrap: anywhere; }
.lead { margin: 0 auto 1.8rem; max-width: 44ch; opacity: 0.92; }
button {
  border: 0; border-radius: 999px; padding: 0.8rem 1.6rem; font: inherit; font-weight: 600; cursor: pointer;
  color: var(--accent); background: #fff; box-shadow: 0 10px 30px rgb(0 0 0 / 18%); transition: transform 0.15s;
}
button:hover { transform: translateY(-2px); }
.grid {
  display: grid; gap: 1.1rem; max-width: 62rem; margin: -2.2rem auto 0; padding: 0 1.2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr));
}
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 18px; padding: 1.4rem 1.6rem;
  box-shadow: 0 8px 28px rgb(0 0 0 / 6%); overflow-wrap: anywhere;
}
.wide, .change { grid-column: 1 / -1; }
.change { border-left: 5px solid var(--accent); }
.tag { font-size: 0.72rem; font-weight: 700; letter-spacing: 0.08em; text-transform: uppercase; opacity: 0.7; }
blockquote { margin: 0.5rem 0 0; font-size: 1.15rem; }
ol { margin: 0.5rem 0 0; padding-left: 1.2rem; }
footer { padding: 2.5rem 1rem; text-align: center; font-size: 0.85rem; opacity: 0.65; }
`
}
