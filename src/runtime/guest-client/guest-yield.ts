import { FairYield } from '../../lib/async/fair-yield.ts'

/**
 * One thread reads what all guests send, and guests are hostile. A long read yields here between two pieces; one reader goes on per
 * iteration of the event loop, so guests that flood slow down each other and not the server.
 */
export const guestYield = new FairYield(1)
