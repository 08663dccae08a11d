const hidden = '[redacted]'
const textLengthMax = 512
/** What is looked at: a secret that begins in the kept part ends within. The patterns cost the square of it. */
const readLengthMax = 2048
const itemsMax = 64
/** Of the arguments of one command together. */
const argumentsLengthMax = 16 * 1024
const depthMax = 3

/** Flags and names whose value is a secret. */
const secretName =
  /(?:^|[-_.])(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credentials?|auth(?:orization)?|bearer|cookie|session[-_]?key|signature|sig)(?:$|[-_.=:])/i

const secretEnd = /(?:password|passwd|passphrase|secret|token|apikey)$/i

/** Texts that are secrets by their form. */
const secretForms: readonly RegExp[] = [
  /\batoll_(?:op_)?[A-Za-z0-9_-]{20,}/g,
  /\bpvt_[A-Za-z0-9_-]{20,}/g,
  /\bmoment_[A-Za-z0-9_-]{20,}/g,
  /\bst\.[a-z]+\.[0-9a-z]+\.session_[a-z0-9]+\.[A-Za-z0-9_-]{43}/g,
  /\bwhsec_[A-Za-z0-9+/=]{16,}/g,
  /\bsk-[A-Za-z0-9_-]{16,}/g,
  /\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})/g,
  /\bglpat-[A-Za-z0-9_-]{16,}/g,
  /\bxox[abeoprs]-[A-Za-z0-9-]{10,}/g,
  /\bnpm_[A-Za-z0-9]{30,}/g,
  /\bpypi-[A-Za-z0-9_-]{20,}/g,
  /\bdckr_pat_[A-Za-z0-9_-]{20,}/g,
  /\bhf_[A-Za-z0-9]{20,}/g,
  /\bAIza[A-Za-z0-9_-]{30,}/g,
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  /\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}/g,
  /\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}/g,
  /\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*/g,
  // Who knows such an address may post to it.
  /\bhooks\.slack\.com\/(?:services|workflows|triggers)\/[A-Za-z0-9/_-]+/g,
  /\bdiscord(?:app)?\.com\/api\/webhooks\/[0-9]+\/[A-Za-z0-9_-]+/g,
  /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g,
]

/** Removes secrets from a text of a client, and cuts it. */
export function redactText(text: string): string {
  const read = text
    .slice(0, readLengthMax)
    // User and password in a URL.
    .replaceAll(/([a-z][a-z0-9+.-]{0,31}:\/\/)[^\s/@]+@/gi, `$1${hidden}@`)
    .replaceAll(/\b(bearer|basic|token)\s+[A-Za-z0-9._~+/=-]{8,}/gi, `$1 ${hidden}`)
    // In a query it is a secret far more often than not.
    .replaceAll(/([?&](?:key|code|auth|pass)=)[^\s"'&#]+/gi, `$1${hidden}`)
  let done = redactPairs(read)
    // `--password value` and `set aws_secret_access_key value`, and what `mysql -pvalue`, `sshpass -p value` and `curl -u user:value` have.
    .replaceAll(
      /(^|\s)(--?[A-Za-z0-9_.-]{1,64}|[A-Za-z0-9]{1,32}[_-][A-Za-z0-9_-]{1,64})(\s+)(?!-)("[^"]*"|'[^']*'|[^\s"'&;|]+)/g,
      (whole, before: string, name: string, between: string) =>
        isSecretName(name) || isUserFlag(name) ? `${before}${name}${between}${hidden}` : whole,
    )
    .replaceAll(/\b(sshpass\s+-p\s*)("[^"]*"|'[^']*'|[^\s"'&;|]+)/g, `$1${hidden}`)
    .replaceAll(/(^|\s)-p(?=[^\s-])[^\s"']+/g, `$1-p${hidden}`)
    .replaceAll(/(^|\s)-u(?=[^\s:]*:)[^\s"']+/g, `$1-u${hidden}`)
  for (const form of secretForms) done = done.replaceAll(form, hidden)
  return done.length <= textLengthMax && text.length <= readLengthMax ? done : `${done.slice(0, textLengthMax)}…`
}

/** `NAME=value`, `--name=value`, `name: value`, also within a shell line, a URL or the value of another name. */
function redactPairs(text: string): string {
  const value = /"[^"]*"|'[^']*'|[^\s"'&;|]+/y
  let done = ''
  let from = 0
  for (const { 0: pair, 1: name = '', index } of text.matchAll(/([A-Za-z0-9_.-]{1,64})["']?\s*[=:]\s*/g)) {
    if (index < from || !(isSecretName(name) || isUserFlag(name))) continue
    value.lastIndex = index + pair.length
    if (!value.test(text)) continue
    done += `${text.slice(from, index)}${pair}${hidden}`
    from = value.lastIndex
  }
  return done + text.slice(from)
}

/** Arguments of a command: the one behind a flag of a secret is one too. */
export function redactArguments(given: readonly string[]): string[] {
  const count = shownCount(given)
  const shown = given.slice(0, count).map((argument, index) => {
    const before = given[index - 1] ?? ''
    const isName = before.startsWith('-') || /^[A-Za-z0-9]+[_-][A-Za-z0-9_-]+$/.test(before)
    const isBehindFlag =
      (isName && !before.includes('=') && (isSecretName(before) || isUserFlag(before))) ||
      (before === '-p' && given[index - 2]?.endsWith('sshpass'))
    return isBehindFlag ? hidden : redactText(argument)
  })
  return given.length > count ? [...shown, `… ${given.length - count} more`] : shown
}

/** How many of these come into the audit. */
function shownCount(given: readonly string[]): number {
  let length = 0
  for (const [index, argument] of given.entries()) {
    length += Math.min(argument.length, readLengthMax)
    if (index >= itemsMax || length > argumentsLengthMax) return index
  }
  return given.length
}

/** A value of JSON. Fields with the name of a secret are hidden whole. */
export function redactValue(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return redactText(value)
  if (Array.isArray(value)) {
    if (value.every((item) => typeof item === 'string')) return redactArguments(value)
    return depth >= depthMax ? hidden : value.slice(0, itemsMax).map((item) => redactValue(item, depth + 1))
  }
  if (typeof value !== 'object' || value === null) return value
  if (depth >= depthMax) return hidden
  return Object.fromEntries(
    Object.entries(value)
      .slice(0, itemsMax)
      .map(([name, item]) => [redactText(name), isSecretName(name) ? hidden : redactValue(item, depth + 1)]),
  )
}

/** Of curl and its kin: the password follows the user. */
function isUserFlag(name: string): boolean {
  return name === '-u' || name === '--user'
}

function isSecretName(name: string): boolean {
  // `myToken` is `my-token`; `PGPASSWORD` has no border.
  return secretName.test(name.replaceAll(/([a-z0-9])([A-Z])/g, '$1-$2')) || secretEnd.test(name)
}
