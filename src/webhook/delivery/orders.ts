/** What the server tells the process that delivers. */
export type DeliveryOrders =
  | {
      type: 'start'
      databaseUrl: string
      /** That which seals the secrets of destinations. */
      secret: string
      /** See `readTargets`. */
      targets: string
      userAgent: string
      /** What the process becomes before it connects to anything. */
      user: { uid: number; gid: number }
    }
  | { type: 'stop'; graceMs: number }

/** What it tells. */
export type DeliveryReport = { type: 'waiting' | 'delivering' } | { type: 'trouble'; message: string }
