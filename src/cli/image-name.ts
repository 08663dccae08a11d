/** What `docker pull` takes, as a reference with its registry: `python:3.12` is `docker.io/library/python:3.12`. */
export function withRegistry(reference: string): string {
  const [first = '', ...rest] = reference.split('/')
  const isRegistry = rest.length > 0 && (/[.:]/.test(first) || first === 'localhost')
  if (isRegistry) return reference
  return `docker.io/${rest.length === 0 ? 'library/' : ''}${reference}`
}

/** The name under which an image is kept if no other is given: `python-3.12` of `docker.io/library/python:3.12`. */
export function defaultName(reference: string): string {
  const [path = ''] = reference.split('@')
  const [repository = '', tag = 'latest'] = (path.split('/').at(-1) ?? '').split(':')
  return tag === 'latest' ? repository : `${repository}-${tag}`
}
