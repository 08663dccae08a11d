import { imageNamePattern, imageNameRule } from '../lib/image-name.ts'
import { UsageError } from './exit-codes.ts'

/** The name under which an image is kept if no other is given: `python-3.12` of `docker.io/library/python:3.12`. */
export function defaultName(reference: string): string {
  const [path = ''] = reference.split('@')
  const [repository = '', tag = 'latest'] = (path.split('/').at(-1) ?? '').split(':')
  return tag === 'latest' ? repository : `${repository}-${tag}`
}

/** Refuses what a server would, before a folder is read for it. */
export function assertImageName(name: string): void {
  if (imageNamePattern.test(name)) return
  const isFolder = /^\.{0,2}(?:\/|$)/.test(name)
  const hint = isFolder
    ? 'it goes before the folder, as in "atoll image build tools ."'
    : name.includes('/')
      ? `it has no registry or organisation in front, as in "atoll image build ${name.split('/').at(-1)}"; "atoll image push" gives it those`
      : imageNameRule.replace('must be', 'it is')
  throw new UsageError(`${JSON.stringify(name)} is no name of an image: ${hint}`)
}
