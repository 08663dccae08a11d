/** What the server and the process that delivers agree on about the jobs of `graphile-worker`. */
export const queueSchema = 'graphile_worker'
export const deliverTask = 'deliver'
/** Of a job that could not be done at all, as when the database is away. A failed delivery is another matter: it has a schedule of its own. */
export const jobMaxAttempts = 1000
export interface DeliverPayload {
  messageId: string
}
