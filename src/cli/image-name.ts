/** The name under which an image is kept if no other is given: `python-3.12` of `docker.io/library/python:3.12`. */
export function defaultName(reference: string): string {
  const [path = ''] = reference.split('@')
  const [repository = '', tag = 'latest'] = (path.split('/').at(-1) ?? '').split(':')
  return tag === 'latest' ? repository : `${repository}-${tag}`
}
