import { element } from './element.ts'
import type { Result, SearchIndex } from './search-index.ts'

const resultsMax = 20

/** Makes the search work. What it searches is loaded with the first letter. */
export function installSearch(): void {
  const input = document.querySelector<HTMLInputElement>('#search')
  const box = document.querySelector<HTMLElement>('#results')
  const search = input?.closest<HTMLElement>('.search')
  if (!input || !box || !search) return
  search.hidden = false
  const status = element('p')
  status.setAttribute('role', 'status')
  const list = element('ul')
  box.append(status, list)

  let index: Promise<SearchIndex> | undefined
  const load = async () => {
    index ??= import('./search-index.ts').then(({ loadIndex }) => loadIndex())
    return await index
  }
  const close = () => {
    box.hidden = true
  }
  const update = async () => {
    const query = input.value.trim()
    if (query === '') return close()
    box.hidden = false
    if (index === undefined) status.textContent = 'Loading …'
    const loaded = await load().catch(() => undefined)
    if (input.value.trim() !== query) return
    if (loaded === undefined) {
      index = undefined
      list.replaceChildren()
      status.textContent = 'The search could not be loaded: the server did not answer. Type again to retry.'
      return
    }
    const found = loaded.find(query)
    list.replaceChildren(...found.slice(0, resultsMax).map(resultItem))
    status.textContent = summaryOf(found.length, query)
  }
  input.addEventListener('input', () => void update())
  input.addEventListener('focus', () => {
    if (input.value.trim() !== '') void update()
  })
  search.addEventListener('focusout', ({ relatedTarget }) => {
    if (!(relatedTarget instanceof Node && search.contains(relatedTarget))) close()
  })
  list.addEventListener('click', close)
  search.addEventListener('keydown', (event) => moveFocus(event, input, list, close))
  document.addEventListener('keydown', (event) => {
    if (!asksForSearch(event)) return
    event.preventDefault()
    input.focus()
    input.select()
  })
}

function summaryOf(count: number, query: string): string {
  if (count === 0) return `Nothing about using and operating Atoll has “${query}”.`
  if (count > resultsMax) return `The best ${resultsMax} of ${count} places`
  return count === 1 ? 'One place' : `${count} places`
}

function asksForSearch({ key, ctrlKey, metaKey, altKey, target }: KeyboardEvent): boolean {
  if ((ctrlKey || metaKey) && !altKey) return key.toLowerCase() === 'k'
  const isWriting = target instanceof Element && target.closest('input, textarea, select, [contenteditable]') !== null
  return key === '/' && !altKey && !isWriting
}

function moveFocus(event: KeyboardEvent, input: HTMLInputElement, list: HTMLElement, close: () => void): void {
  const links = [...list.querySelectorAll('a')]
  const at = links.findIndex((link) => link === document.activeElement)
  switch (event.key) {
    case 'ArrowDown':
      ;(links[at + 1] ?? links.at(-1))?.focus()
      break
    case 'ArrowUp':
      if (at === -1) return
      ;(links[at - 1] ?? input).focus()
      break
    case 'Enter':
      // A focused link is followed by the browser.
      if (at !== -1) return
      links[0]?.click()
      break
    case 'Escape':
      if (at !== -1) input.focus()
      else input.blur()
      close()
      break
    default:
      return
  }
  event.preventDefault()
}

function resultItem({ href, title, heading, excerpt }: Result): HTMLLIElement {
  const place = heading === '' ? [title] : [`${title} › `, element('b', {}, heading)]
  const parts = excerpt.map(({ text, isMatch }) => (isMatch ? element('mark', {}, text) : text))
  return element(
    'li',
    {},
    element('a', { href }, element('span', { className: 'place' }, ...place), element('span', {}, ...parts)),
  )
}
