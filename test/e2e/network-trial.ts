/** The rows of `npm run doctor` for the start of a sandbox and for its network, without those before and after them. */
import { tryDriver } from '../../src/runtime/host/self-test.ts'

const { ATOLL_IMAGE_DIR: imageDir = '', ATOLL_DATA_DIR: dataDir = '', ATOLL_HOST_FIREWALL } = process.env

for await (const { name, state, found, advice } of tryDriver({
  imageDir,
  dataDir,
  leaveHostFirewall: ATOLL_HOST_FIREWALL === 'leave',
})) {
  console.log(`${name} ${state} ${found}`)
  if (advice !== undefined) console.log(` → ${advice}`)
  if (name === 'network') break
}
process.exit(0)
