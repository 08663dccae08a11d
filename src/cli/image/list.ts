import { type Command, Option } from 'commander'
import type { Atoll, ImageInfo, TemplateInfo } from '../../../sdk/src/index.ts'
import { baseImage } from '../build.ts'
import { type ListFlags, writeList } from '../list.ts'
import { examples } from '../options.ts'
import { when } from '../output.ts'
import { clientOf } from '../settings.ts'
import { sizeText } from '../units.ts'

interface ImageListFlags extends ListFlags {
  all?: boolean
  sort?: keyof typeof orders
}

/** An image as a list shows it: one of this organisation, or what is known of another. */
interface Listed extends Partial<Omit<ImageInfo, 'status'>> {
  name: string
  kind: 'installed' | 'own' | 'shared'
  status: ImageInfo['status'] | 'not built'
}

/** The largest and the latest first. */
const orders = {
  name: (a: Listed, b: Listed) => (a.name < b.name ? -1 : 1),
  size: (a: Listed, b: Listed) => (b.sizeBytes ?? 0) - (a.sizeBytes ?? 0),
  created: (a: Listed, b: Listed) => timeOf(b.createdAt) - timeOf(a.createdAt),
  used: (a: Listed, b: Listed) => timeOf(b.lastUsedAt) - timeOf(a.lastUsedAt),
}

export function addImageList(image: Command): void {
  image
    .command('ls')
    .description(
      'list what sandboxes can be started from: the installed image, your own, and those that the server shares',
    )
    .addHelpText('after', examples('atoll image ls', 'atoll image ls tools', 'atoll create --template python'))
    .argument('[repository]', 'only this name with all of its tags')
    .option('-a, --all', 'your own without a name too: those that were replaced, or built for a sandbox')
    .addOption(new Option('--sort <by>', 'in another order').choices(Object.keys(orders)))
    .option('-q, --quiet', 'print names alone')
    .action(async (repository: string | undefined, _options: ImageListFlags, command: Command) => {
      const { all, sort, ...flags } = command.optsWithGlobals<ImageListFlags>()
      const client = await clientOf(flags)
      const unnamed = all ? await unnamedImages(client) : []
      const found = [...(await startable(client)), ...unnamed].filter(
        ({ name }) => repository === undefined || name.split(':')[0] === repository,
      )
      await writeList(sort === undefined ? found : found.toSorted(orders[sort]), flags, {
        NAME: (one) => one.name,
        KIND: (one) => one.kind,
        STATUS: (one) => one.status,
        SIZE: ({ sizeBytes }) => (sizeBytes === undefined ? undefined : sizeText(sizeBytes)),
        CREATED: (one) => when(one.createdAt),
        USED: (one) => when(one.lastUsedAt),
        ID: (one) => one.id,
      })
    })
}

/** An own image is in its place of the list, with all that is known of it. One of the server's has its name as its id until it is built. */
async function startable(client: Atoll): Promise<Listed[]> {
  const [named, own] = await Promise.all([
    client.json<TemplateInfo[]>('GET', '/api/templates'),
    client.json<ImageInfo[]>('GET', '/api/snapshots'),
  ])
  const images = new Map(own.map((info) => [info.id, info]))
  const listed = named.map(({ id, name, status, createdAt }): Listed => {
    const info = images.get(id)
    if (info !== undefined) return { ...info, name, kind: 'own' }
    if (status === 'processing') return { name, kind: 'shared', status: 'not built' }
    return { id, name, kind: 'shared', status: status === 'error' ? 'failed' : status, createdAt }
  })
  return [{ name: baseImage, kind: 'installed', status: 'ready' }, ...listed]
}

async function unnamedImages(client: Atoll): Promise<Listed[]> {
  const images = await client.json<ImageInfo[]>('GET', '/api/images')
  return images.flatMap(({ name, ...info }) =>
    name === undefined ? { ...info, name: info.id, kind: 'own' as const } : [],
  )
}

function timeOf(text: string | undefined): number {
  return text === undefined ? 0 : Date.parse(text)
}
