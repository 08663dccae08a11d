import { hostToolAt, type HostTool } from '../../hostd/index.ts'

const imageDir = process.env['ATOLL_IMAGE_DIR'] ?? '/var/lib/atoll/images'

/** The program that setup has installed, started by this process. */
export const hostTool: HostTool = hostToolAt(`${imageDir}/hostd/atoll-hostd`)
