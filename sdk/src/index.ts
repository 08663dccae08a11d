/** The entry for Node; `browser.ts` is that for browsers. */
import { prepareWith } from './build-context.ts'
import { prepareInNode } from './build-context-node.ts'
import { connectInNode } from './connect-node.ts'
import { connectWith } from './connect.ts'
import { transferInNode } from './transfer-node.ts'
import { transferWith } from './transfer.ts'

export * from './browser.ts'

connectWith(connectInNode)
prepareWith(prepareInNode)
transferWith(transferInNode)
