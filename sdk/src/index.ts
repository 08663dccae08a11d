/** The entry for Node; `browser.ts` is that for browsers. */
import { connectInNode } from './connect-node.ts'
import { connectWith } from './connect.ts'

export * from './browser.ts'

connectWith(connectInNode)
