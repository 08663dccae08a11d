/** What the build dialog makes an image of. */
export const sources = ['steps', 'dockerfile', 'registry'] as const
export type Source = (typeof sources)[number]
