import type { ImageInfo, ImageManifest } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { visible } from '../../lib/visible.ts'
import { formatBytes } from '../../lib/format.ts'
import { CopyButton } from '../../ui/copy.tsx'
import { Facts } from '../../ui/page.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import { sourceText } from './listed-image.ts'

type Item = readonly [name: string, value: ReactNode]

/** Words of a list, and characters of each, that are drawn. */
const wordsMax = 50
const wordCharsMax = 500

export function ImageFacts({ info }: { info: ImageInfo }): ReactNode {
  const { id, contentHash, manifest, oci, config = {}, createdAt, lastUsedAt } = info
  const { base = 'base', oci: reference, memory = false, runtimeMemoryMB, dockerfile } = manifest as ImageManifest
  const isOnBase = base !== '' && reference === undefined && dockerfile === undefined
  return (
    <Facts
      items={[
        ['Id', <Copied key="id" text={id} />],
        ['Content', <Copied key="content" text={contentHash} />],
        ...given('Replaces', info.replaces, (name) => `${visible(name)}, once it is ready`),
        ['Made of', sourceText(manifest)],
        ...given('On top of', isOnBase ? base : undefined, visible),
        ...given('Fetched from', reference, visible),
        ...given('Digest', oci?.digest, (digest) => <Copied text={digest} />),
        ...given('Size', info.sizeBytes, (bytes) => `${formatBytes(bytes)} without its base`),
        ['Made', <TimeAgo key="made" time={createdAt} />],
        ['Last used', <TimeAgo key="used" time={lastUsedAt} />],
        ...given('Memory', memory || undefined, () => 'kept: its processes run on in sandboxes'),
        ...given('Needs', runtimeMemoryMB, (memoryMB) => `${formatBytes(memoryMB * 2 ** 20)} memory at least`),
        ...listed('Variables', pairsOf(config.envs)),
        ...given('Folder', config.cwd, visible),
        ...given('User', config.user, visible),
        ...listed('Entrypoint', config.entrypoint ?? oci?.entrypoint),
        ...listed('Command', config.cmd ?? oci?.cmd),
        ...listed('Ports', config.exposedPorts),
        ...listed('Labels', pairsOf(config.labels)),
      ]}
    />
  )
}

function given<Value>(name: string, value: Value | undefined, show: (value: Value) => ReactNode): Item[] {
  return value === undefined ? [] : [[name, show(value)]]
}

function pairsOf(fields: Record<string, string> = {}): string[] {
  return Object.entries(fields).map(([name, value]) => `${name}=${value}`)
}

function listed(name: string, words: readonly string[] = []): Item[] {
  if (words.length === 0) return []
  const shown = words.slice(0, wordsMax).map((word) => visible(word.slice(0, wordCharsMax)))
  return [
    [
      name,
      <ul key={name} className="font-mono text-[13px]">
        {shown.map((word, index) => (
          <li key={index} className="break-all">
            {word}
          </li>
        ))}
        {words.length > wordsMax && <li className="font-sans text-soft">and {words.length - wordsMax} more</li>}
      </ul>,
    ],
  ]
}

function Copied({ text }: { text: string }): ReactNode {
  return (
    <span className="-my-1 flex items-center gap-1">
      <code className="min-w-0 truncate font-mono text-[13px]" title={text}>
        {text}
      </code>
      <CopyButton text={text} />
    </span>
  )
}
