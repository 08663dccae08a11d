import type { Command } from 'commander'
import { type Atoll, AtollError, type ImageInfo } from '../../../sdk/src/index.ts'
import { examples } from '../options.ts'
import { writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'
import { sizeText } from '../units.ts'

interface PruneFlags extends Flags {
  all?: boolean
}

/** An answer of `/api/images/caches`. */
interface Removed {
  removed: { id: string; sizeBytes: number }[]
  freedBytes: number
}

export function addPrune(image: Command): void {
  image
    .command('prune')
    .description('delete the caches of builds that no build has now')
    .addHelpText('after', examples('atoll image prune', 'atoll image prune --all'))
    .option('-a, --all', 'also images without a name, which later builds and sandboxes would have begun with')
    .action(async (_options: PruneFlags, command: Command) => {
      const { all, json, ...flags } = command.optsWithGlobals<PruneFlags>()
      const client = await clientOf(flags)
      const { removed: caches, freedBytes } = await client.json<Removed>('DELETE', '/api/images/caches')
      const images = all ? await removeUnnamed(client) : []
      if (json) return await writeJson({ caches, images, freedBytes })
      if (caches.length + images.length === 0) return await writeLine('nothing to delete')
      if (caches.length > 0) await writeLine(`deleted ${counted(caches.length, 'cache')}: ${sizeText(freedBytes)}`)
      if (images.length > 0) await writeLine(`deleted ${counted(images.length, 'image')} without a name`)
    })
}

/** Those that are built or have failed. What they share with other images stays. */
async function removeUnnamed(client: Atoll): Promise<string[]> {
  const found = await client.json<ImageInfo[]>('GET', '/api/images')
  const ids = found.filter(({ name, status }) => name === undefined && status !== 'building').map(({ id }) => id)
  for (const id of ids) {
    await client.json('DELETE', `/api/images/${id}`).catch((error: unknown) => {
      if (!(error instanceof AtollError && error.status === 404)) throw error
    })
  }
  return ids
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
