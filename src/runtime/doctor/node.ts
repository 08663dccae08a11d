import type { HostCheck } from './check.ts'

const majorMin = 24

/** The Node that runs this: the one from node_modules, not the machine's. */
export const nodeCheck: HostCheck = {
  name: 'Node',
  required: true,
  async run() {
    const major = Number(process.versions.node.split('.')[0])
    if (major < majorMin) {
      return {
        state: 'fails',
        found: process.version,
        advice: `needs Node ${majorMin}: start through npm, after npm run setup`,
      }
    }
    return { state: 'works', found: `${process.version}, ${process.execPath}` }
  },
}
