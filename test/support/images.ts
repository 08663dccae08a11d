/** Where setup has put what sandboxes and servers are made of. */
export const imageDir = process.env['ATOLL_IMAGE_DIR'] ?? '/var/lib/atoll/images'
