/** The metadata service: what a sandbox learns and changes about itself, at http://169.254.169.254 inside. */
export { MetadataServer, type MetadataOptions } from './metadata-server.ts'
