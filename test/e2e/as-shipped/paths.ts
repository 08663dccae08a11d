import { imageDir } from '../../support/images.ts'

const script = `
mkdir -p "$0/images" /var/lib/atoll
mount --bind '${imageDir}' "$0/images"
mount --rbind "$0" /var/lib/atoll
exec "$@"`

/** The words to put before a command for which a folder is /var/lib/atoll, with the images in it. */
export function withDefaultPaths(folder: string): string[] {
  return ['unshare', '--mount', '--propagation', 'private', 'sh', '-ec', script, folder]
}
