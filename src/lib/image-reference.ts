/** A named image in a registry: `registry.example.com:5000/team/app:1.2` or `…/app@sha256:…`. */
export interface ImageReference {
  /** Lower case, with the port if one is given. */
  registry: string
  repository: string
  /** `latest` where the reference has neither a tag nor a digest. */
  tag?: string
  /** `sha256:` and 64 hexadecimal digits. It goes before a tag. */
  digest?: string
}

const lengthMax = 512
// The grammar of the distribution specification; the first part always names the registry.
const registryPattern = /^(?:[a-z0-9]+(?:[.-][a-z0-9]+)*|\[[0-9a-f:]+\])(?::[0-9]{1,5})?$/
const componentPattern = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$/
const tagPattern = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/
export const digestPattern = /^sha256:[0-9a-f]{64}$/

/** Undefined for text without a registry in front, such as `alpine`: no default registry is added. */
export function parseImageReference(text: string): ImageReference | undefined {
  if (text.length > lengthMax) return undefined
  const [path = '', digest, ...rest] = text.split('@')
  if (rest.length > 0 || (digest !== undefined && !digestPattern.test(digest))) return undefined
  const [registry = '', ...components] = path.split('/')
  const [last = '', tag, ...more] = (components.pop() ?? '').split(':')
  const repository = [...components, last]
  const isLegal =
    registryPattern.test(registry.toLowerCase()) &&
    more.length === 0 &&
    repository.every((component) => componentPattern.test(component)) &&
    (tag === undefined || tagPattern.test(tag))
  if (!isLegal) return undefined
  const named = { registry: registry.toLowerCase(), repository: repository.join('/') }
  if (digest !== undefined) return { ...named, ...(tag === undefined ? {} : { tag }), digest }
  return { ...named, tag: tag ?? 'latest' }
}

/** What `docker pull` takes, as a reference with its registry: `python:3.12` is `docker.io/library/python:3.12`. */
export function withRegistry(reference: string): string {
  const [first = '', ...rest] = reference.split('/')
  const isRegistry = rest.length > 0 && (/[.:]/.test(first) || first === 'localhost')
  if (isRegistry) return reference
  return `docker.io/${rest.length === 0 ? 'library/' : ''}${reference}`
}
