/** The secrets of builds that are to begin, by image and id. They are in memory alone, until the build of the image has ended. */
export type BuildSecrets = Map<string, ReadonlyMap<string, Buffer>>
