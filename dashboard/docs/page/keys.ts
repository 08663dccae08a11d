import { copyButton } from './copy.ts'
import { element } from './element.ts'

const lifetimeMs = 3_600_000

/** What the page knows of a signed-in reader. */
interface Reader {
  /** What a key for this page may do: what its examples need and the reader may give. */
  scopes: string[]
  namePrefix: string | undefined
  /** By the clock of the server. */
  expiresAt: Date
}

/** What is read of the answer of `GET /api/whoami`. */
interface Whoami {
  /** The operator's key is of no organisation. */
  isOperator: boolean
  key: { scopes: string[] | null; namePrefix: string | null; expiresAt: string | null }
}

/** A key for the examples, which only this page view has. */
interface MadeKey {
  id: string
  secret: string
  expiresAt: Date
}

/**
 * Offers a signed-in reader a key for the examples of this page. The secret is in the text of the page alone, and leaves it with the reader: nothing
 * keeps it.
 */
export async function installKeys(): Promise<void> {
  const places = [...document.querySelectorAll('[data-fill="key"]')]
  const before = places[0]?.closest('.code')
  if (before === undefined || before === null || (await readerOf()) === undefined) return
  const texts = places.map((place) => place.textContent)
  const fill = (secret?: string) => {
    for (const [index, place] of places.entries()) place.textContent = secret ?? texts[index] ?? ''
  }
  const panel = element('div', { className: 'key' })
  panel.setAttribute('role', 'group')
  panel.setAttribute('aria-label', 'Key for the examples')
  const note = element('p')
  note.setAttribute('role', 'status')
  const make = element('button', { type: 'button' }, 'Use a short-lived key here')
  const offer = (text: string) => {
    fill()
    note.textContent = text
    panel.replaceChildren(make, note)
  }
  const onMake = async () => {
    make.disabled = true
    try {
      const made = await makeKey()
      fill(made.secret)
      show(panel, note, made, offer)
    } catch (error) {
      note.textContent = `No key was made: ${reasonOf(error)}`
    } finally {
      make.disabled = false
    }
  }
  make.addEventListener('click', () => void onMake())
  offer(offered)
  before.before(panel)
  // A page that the browser keeps for its back button must not keep the secret.
  addEventListener('pagehide', () => offer(offered))
}

const offered = 'Makes a key that ends within an hour, and puts it into the examples of this page.'

function show(panel: HTMLElement, note: HTMLElement, made: MadeKey, offer: (text: string) => void): void {
  const ends = made.expiresAt.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })
  const revoke = element('button', { type: 'button' }, 'Revoke it')
  const onRevoke = async () => {
    revoke.disabled = true
    try {
      await ask('DELETE', `/api/keys/${encodeURIComponent(made.id)}`)
      offer('The key was revoked.')
    } catch (error) {
      note.textContent = `The key was not revoked: ${reasonOf(error)}`
      revoke.disabled = false
    }
  }
  revoke.addEventListener('click', () => void onRevoke())
  note.textContent = `This key is in the examples until you leave the page, and ends at ${ends}. It is shown this once.`
  const secret = element('code', {}, made.secret)
  panel.replaceChildren(
    secret,
    copyButton('Copy the key', () => made.secret),
    revoke,
    note,
  )
  revoke.focus()
}

/** Undefined for a reader who is not signed in, or whose key makes no keys. */
async function readerOf(): Promise<Reader | undefined> {
  const answer = await fetch('/api/whoami').catch(() => undefined)
  if (answer?.ok !== true) return undefined
  const { key, isOperator } = (await answer.json()) as Whoami
  const wanted = document.querySelector<HTMLElement>('[data-scopes]')?.dataset['scopes']?.split(' ') ?? []
  const { scopes, namePrefix, expiresAt } = key
  if (isOperator || scopes?.includes('keys') === false) return undefined
  // The clock of this machine may be wrong.
  const nowMs = Date.parse(answer.headers.get('date') ?? '') || Date.now()
  const endMs = Math.min(nowMs + lifetimeMs, expiresAt === null ? Infinity : Date.parse(expiresAt))
  return {
    scopes: wanted.filter((scope) => scopes?.includes(scope) !== false),
    namePrefix: namePrefix ?? undefined,
    expiresAt: new Date(endMs),
  }
}

async function makeKey(): Promise<MadeKey> {
  const reader = await readerOf()
  if (reader === undefined)
    throw new Error('you are no longer signed in. Sign in at the dashboard and reload this page.')
  const { scopes, namePrefix, expiresAt } = reader
  const name = `documentation ${location.pathname.replace('/docs/', '')}`
  const made = (await ask('POST', '/api/keys', { name, scopes, namePrefix, expiresAt })) as { id: string; key: string }
  return { id: made.id, secret: made.key, expiresAt }
}

/** The answer of a call with the cookie of the dashboard. Throws with the reason of the server. */
async function ask(method: string, path: string, body?: object): Promise<unknown> {
  const init: RequestInit = { method }
  if (body !== undefined) {
    init.headers = { 'content-type': 'application/json' }
    init.body = JSON.stringify(body)
  }
  const answer = await fetch(path, init)
  const text = await answer.text()
  if (answer.ok) return text === '' ? undefined : JSON.parse(text)
  throw new Error(messageIn(text) ?? `the server answered ${answer.status}`)
}

function messageIn(text: string): string | undefined {
  try {
    const { error } = JSON.parse(text) as { error?: unknown }
    return typeof error === 'string' ? error : undefined
  } catch {
    return undefined
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof TypeError) return 'the server could not be reached.'
  return error instanceof Error ? error.message : String(error)
}
