import type { ImageManifest } from 'atoll-sdk'
import { quoted } from '../../../lib/quoted.ts'
import { literalOf } from '../../../sandboxes/literal.ts'
import type { Commands } from '../../../ui/commands.tsx'
import type { Source } from '../sources.ts'

interface Build {
  name: string
  manifest: ImageManifest
  isReplacing: boolean
}

/** The build by other means than this page. */
export function commandsOf(source: Source, { name, manifest, isReplacing }: Build): Commands {
  const replace = isReplacing ? ' --replace' : ''
  const json = { name, image: manifest, ...(isReplacing ? { replace: true } : {}) }
  const cli: Record<Source, () => string> = {
    steps: () =>
      `atoll image build ${quoted(name)} -${replace} <<'END'\n${JSON.stringify(manifest, undefined, 2)}\nEND`,
    dockerfile: () =>
      `atoll image build ${quoted(name)} -f -${replace} <<'END'\n${manifest.dockerfile?.trimEnd()}\nEND`,
    registry: () => `atoll image add ${quoted(manifest.oci ?? '')} --name ${quoted(name)}${replace}`,
  }
  return {
    cli: cli[source](),
    curl: { method: 'POST', path: '/api/snapshots', json },
    sdk: `const image = await Image.build(${literalOf(name)}, ${literalOf(manifest)}${isReplacing ? ', { replace: true }' : ''})`,
  }
}
