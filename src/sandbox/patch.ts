export const patchStrategies = ['on_wake', 'on_resume'] as const

/** `on_wake`: at each start from the checkpoint. `on_resume`: that, and at each wake from hibernation. */
export type PatchStrategy = (typeof patchStrategies)[number]

export const resumeStrategies: readonly PatchStrategy[] = ['on_resume']

export interface Patch {
  id: string
  checkpointId: string
  script: string
  description: string
  strategy: PatchStrategy
  /** 1, 2, 3 … in its checkpoint, never reused. */
  sequence: number
  createdAt: Date
}
